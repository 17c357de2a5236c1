"""Numbers as Java has them: integers that wrap or saturate, the text of doubles, decimals of a fixed scale."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException, InvalidOperation
from functools import lru_cache

from penstock.base.java_text.numbers import double_text
from penstock.sql.types.sql_type import DecimalType, SqlValueError

__all__ = [
    "INT_MAX",
    "INT_MIN",
    "LONG_MAX",
    "LONG_MIN",
    "decimal_text",
    "double_text",
    "exact_context",
    "fit",
    "parse_decimal",
    "parse_double",
    "parse_whole",
    "rescale",
    "saturate",
    "to_decimal",
    "wrap_int",
    "wrap_long",
]

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
MAX_DIGITS = 10_000  # of a number in text: bounded before it is parsed
WHOLE = re.compile(r"[+-]?[0-9]+")
FLOATING = re.compile(r"([+-]?)(NaN|Infinity|(?:[0-9]++\.?[0-9]*+|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")
EXACT = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?")
WIDE = Context(prec=20_000)


def wrap_int(value: int) -> int:
    """Return the low 32 bits as a signed number, as Java's ``int`` overflows.

    >>> wrap_int(2**31)
    -2147483648
    """
    return ((value + 2**31) & 0xFFFFFFFF) - 2**31


def wrap_long(value: int) -> int:
    """Return the low 64 bits as a signed number, as Java's ``long`` overflows."""
    return ((value + 2**63) & 0xFFFFFFFFFFFFFFFF) - 2**63


def saturate(value: float, low: int, high: int) -> int:
    """Return a double as a whole number, as Java's cast has it: cut off, held in the range, NaN is 0.

    >>> saturate(1e30, INT_MIN, INT_MAX), saturate(-1.9, INT_MIN, INT_MAX)
    (2147483647, -1)
    """
    if math.isnan(value):
        return 0
    if value <= low:
        return low
    if value >= high:
        return high
    return int(value)


def decimal_text(value: Decimal) -> str:
    """Return a decimal with all its digits and no exponent, as Java's ``toPlainString`` writes it."""
    return f"{value:f}"


def to_decimal(value: float | Decimal) -> Decimal:
    """Return a number as a decimal; a double by its shortest text, as Java's ``BigDecimal.valueOf``."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SqlValueError(f"{double_text(value)} is not a decimal number")
        return Decimal(repr(value))
    return Decimal(value)


def rescale(value: Decimal, scale: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return a decimal with another number of digits behind the point.

    >>> rescale(Decimal("2.345"), 2)
    Decimal('2.35')
    """
    result = value.quantize(Decimal(1).scaleb(-scale), rounding=rounding, context=WIDE)
    return result or abs(result)  # BigDecimal has no negative zero


def fit(value: float | Decimal, kind: DecimalType) -> Decimal:
    """Return a number rounded half up to a decimal type; one with too many digits is an error.

    >>> fit(1.05, DecimalType(2, 1))
    Decimal('1.1')
    >>> fit(12.5, DecimalType(2, 1))
    Traceback (most recent call last):
    ...
    penstock.sql.types.sql_type.SqlValueError: 12.5 does not fit DECIMAL(2, 1)
    """
    number = to_decimal(value)
    try:
        rounded = rescale(number, kind.scale)
    except InvalidOperation as error:
        raise SqlValueError(f"{number} is not a {kind}") from error
    if rounded and rounded.adjusted() >= kind.precision - kind.scale:
        raise SqlValueError(f"{decimal_text(number)} does not fit {kind}")
    return rounded


@lru_cache(maxsize=256)
def exact_context(precision: int) -> Context:
    """Return a context that fails where Java's ``MathContext(precision, UNNECESSARY)`` does: on any inexact result."""
    from decimal import DivisionByZero, Inexact, Overflow

    return Context(prec=precision, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])


def parse_whole(text: str, low: int, high: int) -> int:
    """Return a whole number of the range from text; blanks around it are ignored."""
    stripped = text.strip()
    if len(stripped) <= MAX_DIGITS and WHOLE.fullmatch(stripped):
        digits = stripped.lstrip("+-0")
        if len(digits) <= 19:
            value = int(stripped)
            if low <= value <= high:
                return value
    raise SqlValueError(f"{_short(text)} is not a whole number from {low} to {high}")


def parse_double(text: str) -> float:
    """Return a double from text, as Java's ``Double.parseDouble`` reads it."""
    match = FLOATING.fullmatch(text.strip()) if len(text) <= MAX_DIGITS else None
    if match is None:
        raise SqlValueError(f"{_short(text)} is not a number")
    return float(match[1] + match[2])


def parse_decimal(text: str) -> Decimal:
    """Return a decimal from text."""
    stripped = text.strip()
    if len(stripped) > MAX_DIGITS or not EXACT.fullmatch(stripped):
        raise SqlValueError(f"{_short(text)} is not a decimal number")
    try:
        return Decimal(stripped)
    except DecimalException as error:
        raise SqlValueError(f"{_short(text)} is not a decimal number") from error


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
