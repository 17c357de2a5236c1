"""The operators ``= <> < <= > >=`` and IS DISTINCT FROM: which types compare, and how."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from penstock.sql.types.casts import cast_function
from penstock.sql.types.numbers import to_decimal
from penstock.sql.types.sql_type import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    StructType,
    is_numeric,
)
from penstock.sql.types.type_errors import SqlTypeError

__all__ = ["COMPARISONS", "comparison", "distinct", "java_name"]

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
