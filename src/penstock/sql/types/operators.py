"""Operators: arithmetic that overflows and fails as Java's, comparison, IS DISTINCT FROM."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, DecimalException
from typing import Any

from penstock.sql.types.conversions import as_decimal, cast_function
from penstock.sql.types.numbers import exact_context, rescale, to_decimal, wrap_int, wrap_long
from penstock.sql.types.sql_type import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    SqlTypeError,
    SqlValueError,
    StructType,
    base_name,
    is_numeric,
)

__all__ = ["arithmetic", "comparison", "distinct", "java_name", "negation"]

OPERATORS = ("+", "-", "*", "/", "%")
Binary = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class BoundOperator:
    """An operator for two types: the type of its result, and the function over values that are not null."""

    type: SqlType
    apply: Binary


def arithmetic(operator_: str, left: SqlType, right: SqlType) -> BoundOperator:
    """Return the operator for operands of two types.

    A null operand is an error of the whole select expression, so it never reaches the function.

    >>> arithmetic("+", INTEGER, INTEGER).apply(2**31 - 1, 1)
    -2147483648
    >>> quotient = arithmetic("/", DecimalType(4, 2), DecimalType(4, 2))
    >>> str(quotient.type), quotient.apply(Decimal("10.10"), Decimal("2.00"))
    ('DECIMAL(11, 7)', Decimal('5.0500000'))

    Raises:
        SqlTypeError: the operator is not defined for these types. The function raises `SqlValueError` where an integer
            or decimal is divided by zero, or a quotient of decimals is not exact.
    """
    if operator_ == "+" and left == right == STRING:
        return BoundOperator(STRING, operator.add)
    if not (is_numeric(left) and is_numeric(right)):
        raise SqlTypeError(f"Arithmetic does not take {base_name(left)} and {base_name(right)}")
    if DOUBLE in (left, right):
        return BoundOperator(DOUBLE, DOUBLES[operator_])
    if isinstance(left, DecimalType) or isinstance(right, DecimalType):
        result = decimal_result(operator_, as_decimal(left), as_decimal(right))
        return BoundOperator(result, _exact(operator_, result))
    if left == right == INTEGER:
        return BoundOperator(INTEGER, INTEGERS[operator_])
    return BoundOperator(BIGINT, LONGS[operator_])


def decimal_result(operator_: str, left: DecimalType, right: DecimalType) -> DecimalType:
    """Return the decimal type of a result.

    >>> str(decimal_result("*", DecimalType(4, 2), DecimalType(5, 3)))
    'DECIMAL(10, 5)'
    """
    whole = max(left.precision - left.scale, right.precision - right.scale)
    scale = max(left.scale, right.scale)
    match operator_:
        case "+" | "-":
            return DecimalType(whole + scale + 1, scale)
        case "*":
            return DecimalType(left.precision + right.precision + 1, left.scale + right.scale)
        case "/":
            scale = max(6, left.scale + right.precision + 1)
            return DecimalType(left.precision - left.scale + right.scale + scale, scale)
        case "%":
            least = min(left.precision - left.scale, right.precision - right.scale)
            return DecimalType(max(1, least + scale), scale)
    raise SqlTypeError(f"there is no operator {operator_}")


def negation(kind: SqlType) -> Callable[[Any], Any]:
    """Return the function of a minus sign before an operand."""
    if kind == INTEGER:
        return lambda value: wrap_int(-value)
    if kind == BIGINT:
        return lambda value: wrap_long(-value)
    if kind == DOUBLE:
        return operator.neg
    if isinstance(kind, DecimalType):
        return lambda value: value.copy_negate() if value else value
    raise SqlTypeError(f"Negation on unsupported type: {base_name(kind)}")


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise SqlValueError("/ by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    return left - right * _quotient(left, right)


def _wrapped(step: Callable[[int, int], int], wrap: Callable[[int], int]) -> Binary:
    return lambda left, right: wrap(step(left, right))


WHOLE: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
}
INTEGERS = {name: _wrapped(step, wrap_int) for name, step in WHOLE.items()}
LONGS = {name: _wrapped(step, wrap_long) for name, step in WHOLE.items()}


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _modulo(left: float, right: float) -> float:
    if right == 0 or math.isinf(left):
        return math.nan
    return math.fmod(left, right)


def _floats(step: Callable[[float, float], float]) -> Binary:
    return lambda left, right: step(float(left), float(right))


DOUBLES = {
    "+": _floats(operator.add),
    "-": _floats(operator.sub),
    "*": _floats(operator.mul),
    "/": _floats(_divide),
    "%": _floats(_modulo),
}


def _exact(operator_: str, result: DecimalType) -> Binary:
    context = exact_context(result.precision)
    step = DECIMALS[operator_]
    scale = result.scale

    def apply(left: int | Decimal, right: int | Decimal) -> Decimal:
        try:
            exact = step(context, Decimal(left), Decimal(right))
        except DecimalException as error:
            raise SqlValueError(f"{left} {operator_} {right} has no exact result of type {result}") from error
        return rescale(exact, scale)

    return apply


DECIMALS: dict[str, Callable[[Context, Decimal, Decimal], Decimal]] = {
    "+": Context.add,
    "-": Context.subtract,
    "*": Context.multiply,
    "/": Context.divide,
    "%": Context.remainder,
}


Compare = Callable[[Any, Any], bool]
COMPARISONS: dict[str, Compare] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
JAVA_NAMES = {
    "=": "EQUAL",
    "<>": "NOT_EQUAL",
    "<": "LESS_THAN",
    "<=": "LESS_THAN_OR_EQUAL",
    ">": "GREATER_THAN",
    ">=": "GREATER_THAN_OR_EQUAL",
}
TIMES = (DATE, TIME, TIMESTAMP)


def java_name(operator_: str) -> str:
    """Return the name of a comparison in messages.

    >>> java_name("<")
    'LESS_THAN'
    """
    return JAVA_NAMES.get(operator_, operator_)


def comparison(operator_: str, left: SqlType, right: SqlType) -> Compare:
    """Return the function that compares values of two types. A null on either side makes it false, also for ``<>``.

    >>> from datetime import date
    >>> less = comparison("<", DATE, STRING)
    >>> less(date(2020, 1, 1), "2020-01-02"), less(None, "2020-01-02")
    (True, False)

    Raises:
        SqlTypeError: the types cannot be compared so.
    """
    convert_left, convert_right = _conversions(operator_, left, right)
    compare = COMPARISONS[operator_]

    def apply(one: Any, two: Any) -> bool:
        if one is None or two is None:
            return False
        return compare(convert_left(one), convert_right(two))

    return apply


def distinct(left: SqlType, right: SqlType) -> Compare:
    """Return the function of IS DISTINCT FROM: two nulls are not distinct, a null and a value are."""
    if NULL in (left, right):
        return lambda one, two: (one is None) != (two is None)
    convert_left, convert_right = _conversions("IS DISTINCT FROM", left, right)

    def apply(one: Any, two: Any) -> bool:
        if one is None or two is None:
            return (one is None) != (two is None)
        return bool(convert_left(one) != convert_right(two))

    return apply


def _conversions(operator_: str, left: SqlType, right: SqlType) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if NULL in (left, right):
        raise SqlTypeError(f"NULL cannot be compared: {left} {operator_} {right}")
    if is_numeric(left) and is_numeric(right):
        return _numeric(left, right)
    if left == STRING and right in TIMES:
        return cast_function(STRING, right), _same
    if right == STRING and left in TIMES:
        return _same, cast_function(STRING, left)
    if {left, right} == {DATE, TIMESTAMP}:
        return cast_function(left, TIMESTAMP), cast_function(right, TIMESTAMP)
    equality = operator_ in ("=", "<>", "IS DISTINCT FROM")
    if left == right and (left in (STRING, BYTES, *TIMES) or (left == BOOLEAN and equality)):
        return (_utf16, _utf16) if left == STRING and not equality else (_same, _same)
    if left == right and equality and isinstance(left, ArrayType | MapType | StructType):
        return _same, _same
    raise SqlTypeError(f"{java_name(operator_)} does not compare {left} and {right}.")


def _numeric(left: SqlType, right: SqlType) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if isinstance(left, DecimalType) or isinstance(right, DecimalType):
        return to_decimal, to_decimal
    return (float, float) if DOUBLE in (left, right) else (_same, _same)


def _same(value: Any) -> Any:
    return value


def _utf16(text: str) -> bytes:
    """Java orders strings by their UTF-16 units, where characters beyond U+FFFF come before U+E000."""
    return text.encode("utf-16-be", "surrogatepass")
