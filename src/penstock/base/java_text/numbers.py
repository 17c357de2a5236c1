"""Texts of numbers as Java writes and reads them."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal, DecimalException

from penstock.base.java_text.texts import JavaTextError

__all__ = [
    "double_text",
    "float_text",
    "parse_big_decimal",
    "parse_double",
    "parse_integer",
    "to_float32",
    "whole_number",
]

LONGEST = 10_000  # characters of a number; longer ones are refused before they cost time
# Digits of any script, as Java's readers of whole numbers and decimals take them; those of doubles take ASCII's only.
WHOLE = re.compile(r"[+-]?\d+")
EXACT = re.compile(r"[+-]?(?:\d++\.?\d*+|\.\d+)(?:[eE][+-]?(\d+))?")
LARGEST_EXPONENT = (1 << 31) - 1
FLOATING = re.compile(
    r"([+-]?)(?:(NaN)|(Infinity)|([0-9]++\.?[0-9]*+(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)",
    re.ASCII,
)


def double_text(value: float) -> str:
    """Return the text of a double, as Java's ``Double.toString`` writes it.

    >>> [double_text(x) for x in (1.0, 1e7, 0.001, 1.25e-5, float("inf"))]
    ['1.0', '1.0E7', '0.001', '1.25E-5', 'Infinity']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    if len(digits) == 1:  # Java prefers the nearest number of two digits: 4.9E-324
        sign, digits, exponent = Decimal(f"{value:.1e}").as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)  # of 0.text times ten to the point
    shown = "-" if sign else ""
    if -3 < point <= 7:
        if point <= 0:
            return f"{shown}0.{'0' * -point}{text}"
        return f"{shown}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{shown}{text[0]}.{text[1:] or '0'}E{point - 1}"


def float_text(value: float) -> str:
    """Return the text of a float of 32 bits, as Java's ``Float.toString`` writes it.

    >>> [float_text(x) for x in (0.1, 1e10, 3.4028234663852886e38)]
    ['0.1', '1.0E10', '3.4028235E38']
    """
    single = to_float32(value)
    if not math.isfinite(single) or single == 0:
        return double_text(single)
    digits = next(d for d in range(2, 10) if to_float32(float(f"{single:.{d - 1}e}")) == single)
    return double_text(float(f"{single:.{digits - 1}e}"))


def to_float32(value: float) -> float:
    """Return the float of 32 bits nearest to a number; infinite if it is too large.

    >>> to_float32(1e39), to_float32(0.5)
    (inf, 0.5)
    """
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def parse_integer(text: str, bits: int) -> int:
    """Return a whole number from text, as Java's ``Integer.parseInt`` and its kin read it: no blanks, no fraction.

    Raises:
        JavaTextError: The text is not a number, or does not fit the bits.
    """
    value = whole_number(text)
    if value is not None and -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        return value
    raise JavaTextError(f'For input string: "{text}"')


def whole_number(text: str) -> int | None:
    """Return the whole number of a text, as Java's ``BigInteger`` reads it; None if it is something else.

    >>> whole_number("-12"), whole_number("\u0663"), whole_number("1_0")
    (-12, 3, None)
    """
    if len(text) > LONGEST or not WHOLE.fullmatch(text) or max(text) > "\uffff":
        return None
    return int(Decimal(text))  # not by int: Python limits its digits


def parse_double(text: str) -> float:
    """Return a double from text, as Java's ``Double.parseDouble`` reads it: blanks around it, ``1f``, hexadecimal, NaN.

    >>> parse_double(" 1.5f "), parse_double("0x1p4")
    (1.5, 16.0)
    """
    stripped = text.strip("".join(map(chr, range(33))))
    match = FLOATING.fullmatch(stripped) if len(stripped) <= LONGEST else None
    if match is None:
        raise JavaTextError("empty String" if not stripped else f'For input string: "{text}"')
    sign, nan, infinity, decimal, hexadecimal = match.groups()
    if hexadecimal:
        return float.fromhex(sign + hexadecimal)
    return float(sign + (decimal or ("nan" if nan else "inf" if infinity else "")))


def parse_big_decimal(text: str) -> Decimal:
    """Return a decimal from text, as Java's ``BigDecimal`` reads it: its scale stays.

    >>> parse_big_decimal("12.30"), parse_big_decimal("1e3")
    (Decimal('12.30'), Decimal('1E+3'))
    """
    match = EXACT.fullmatch(text) if len(text) <= LONGEST else None
    if match is None or max(text) > "\uffff":
        odd = next((c for c in text if not c.isdigit() and c not in "+-.eE"), "")
        raise JavaTextError(
            f'Character {odd} is neither a decimal digit number, decimal point, nor "e" notation exponential mark.'
        )
    try:
        value = Decimal(text)
    except DecimalException as error:
        raise JavaTextError(f"the exponent of {text} is too large") from error
    if match[1] is not None:
        exponent = value.as_tuple().exponent
        if Decimal(match[1]) > LARGEST_EXPONENT or not -LARGEST_EXPONENT <= -int(exponent) <= LARGEST_EXPONENT:
            raise JavaTextError(f"the exponent of {text} is too large")
    return value or value.copy_abs()  # there is no negative zero
