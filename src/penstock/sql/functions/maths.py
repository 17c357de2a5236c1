"""Mathematical functions, and distances on the earth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction

from penstock.base.randomness import RANDOM
from penstock.sql.functions.registry import Family
from penstock.sql.types import BIGINT, DecimalType, SqlType, SqlValueError
from penstock.sql.types.numbers import INT_MIN, LONG_MAX, LONG_MIN, rescale, saturate, to_decimal

__all__ = ["GEO", "MATHS"]

MATHS = Family("maths")
NUMBERS = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL")


def _same(name: str) -> tuple[str, ...]:
    return tuple(f"{name}(value {kind}) {kind}" for kind in NUMBERS)


def _double(name: str) -> str:
    return f"{name}(value DOUBLE) DOUBLE"


def _java(step: Callable[..., float]) -> Callable[..., float]:
    """Return NaN and infinity where Python's functions raise, as Java's do."""

    def computed(*values: float) -> float:
        try:
            return step(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return computed


@MATHS.scalar("ABS(value INTEGER) INTEGER", examples=[("ABS(-3)", "3")])
def absolute(value: int) -> int:
    """The absolute value of a number."""
    return value if value == INT_MIN else abs(value)


@MATHS.scalar("ABS(value BIGINT) BIGINT", "ABS(value DOUBLE) DOUBLE", "ABS(value DECIMAL) DECIMAL")
def absolute_wide(value: float) -> float:
    return value if value == LONG_MIN and isinstance(value, int) else abs(value)


@MATHS.scalar(*_same("CEIL"), examples=[("CEIL(1.2E0)", "2.0E0"), ("CEIL(-1.2)", "-1.0")])
def ceil(value: float | Decimal) -> float | Decimal:
    """The least whole number that is not below a number; its type stays."""
    return _whole(value, ROUND_CEILING)


@MATHS.scalar(*_same("FLOOR"), examples=[("FLOOR(1.7E0)", "1.0E0"), ("FLOOR(-1.2)", "-2.0")])
def floor(value: float | Decimal) -> float | Decimal:
    """The greatest whole number that is not above a number; its type stays."""
    return _whole(value, ROUND_FLOOR)


def _whole(value: float | Decimal, rounding: str) -> float | Decimal:
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal):
        return rescale(rescale(value, 0, rounding), max(0, -int(value.as_tuple().exponent)))
    if not math.isfinite(value):
        return value
    rounded = math.ceil(value) if rounding == ROUND_CEILING else math.floor(value)
    return math.copysign(float(rounded), value)


def _rounded_type(kinds: Sequence[SqlType]) -> SqlType:
    kind = kinds[0]
    return DecimalType(max(1, kind.precision - kind.scale), 0) if isinstance(kind, DecimalType) else kind


def _half(value: Decimal) -> str:
    return ROUND_HALF_DOWN if value < 0 else ROUND_HALF_UP


@MATHS.scalar("ROUND(value DOUBLE) BIGINT", examples=[("ROUND(2.5E0)", "3"), ("ROUND(-1.5E0)", "-1")])
def round_double(value: float) -> int:
    """The nearest whole number, or with a second argument the nearest with so many decimals; halves go up."""
    return saturate(math.floor(value + 0.5) if math.isfinite(value) else value, LONG_MIN, LONG_MAX)


@MATHS.scalar("ROUND(value INTEGER) BIGINT", "ROUND(value BIGINT) BIGINT")
def round_whole(value: int) -> int:
    return value


@MATHS.scalar("ROUND(value DECIMAL) DECIMAL", returns=_rounded_type)
def round_decimal(value: Decimal) -> Decimal:
    return rescale(value, 0, _half(value))


@MATHS.scalar("ROUND(value DOUBLE, places INTEGER) DOUBLE", examples=[("ROUND(1.234E0, 2)", "1.23E0")])
def round_double_to(value: float, places: int) -> float:
    return _at(value, places, _half)


@MATHS.scalar(
    "ROUND(value INTEGER, places INTEGER) INTEGER",
    "ROUND(value BIGINT, places INTEGER) BIGINT",
    examples=[("ROUND(12345, -2)", "12300")],
)
def round_whole_to(value: int, places: int) -> int:
    return value if places >= 0 else int(rescale(Decimal(value), max(places, -20), _half(Decimal(value))))


@MATHS.scalar("ROUND(value DECIMAL, places INTEGER) DECIMAL", examples=[("ROUND(12.345, 1)", "12.300")])
def round_decimal_to(value: Decimal, places: int) -> Decimal:
    return _kept(value, places, _half(value))


def _at(value: float, places: int, rounding: Callable[[Decimal], str]) -> float:
    if not math.isfinite(value) or places > 400:
        return value
    exact = to_decimal(value)
    return float(rescale(exact, max(places, -400), rounding(exact)))


def _kept(value: Decimal, places: int, rounding: str) -> Decimal:
    scale = max(0, -int(value.as_tuple().exponent))
    return value if places >= scale else rescale(rescale(value, max(places, -1000), rounding), scale)


@MATHS.scalar(
    "TRUNC(value INTEGER) BIGINT",
    "TRUNC(value BIGINT) BIGINT",
    "TRUNC(value DECIMAL) DECIMAL",
    examples=[("TRUNC(12.0) = 12", "true")],
    returns=lambda kinds: _truncated_type(kinds[0]),
)
def trunc(value: int | Decimal) -> int | Decimal:
    """A number without its decimals, or with a second argument cut off behind so many decimals."""
    return rescale(value, 0, ROUND_DOWN) if isinstance(value, Decimal) else value


def _truncated_type(kind: SqlType) -> SqlType:
    return DecimalType(max(1, kind.precision - kind.scale), 0) if isinstance(kind, DecimalType) else BIGINT


@MATHS.scalar("TRUNC(value DOUBLE) BIGINT", examples=[("TRUNC(-1.9E0)", "-1")])
def trunc_double(value: float) -> int:
    return saturate(value, LONG_MIN, LONG_MAX)


@MATHS.scalar("TRUNC(value DOUBLE, places INTEGER) DOUBLE", examples=[("TRUNC(1.297E0, 2)", "1.29E0")])
def trunc_double_to(value: float, places: int) -> float:
    return _at(value, places, lambda _: ROUND_DOWN)


@MATHS.scalar("TRUNC(value INTEGER, places INTEGER) INTEGER", "TRUNC(value BIGINT, places INTEGER) BIGINT")
def trunc_whole_to(value: int, places: int) -> int:
    return value if places >= 0 else int(rescale(Decimal(value), max(places, -20), ROUND_DOWN))


@MATHS.scalar("TRUNC(value DECIMAL, places INTEGER) DECIMAL")
def trunc_decimal_to(value: Decimal, places: int) -> Decimal:
    return _kept(value, places, ROUND_DOWN)


@MATHS.scalar(*(f"SIGN(value {kind}) INTEGER" for kind in NUMBERS), examples=[("SIGN(-2.5)", "-1")])
def sign(value: float | Decimal) -> int:
    """-1, 0 or 1 for a negative number, zero, a positive number."""
    return (value > 0) - (value < 0)


@MATHS.scalar(_double("SQRT"), examples=[("SQRT(4)", "2.0E0")])
def sqrt(value: float) -> float:
    """The square root of a number; NaN for a negative one."""
    return _java(math.sqrt)(value)


@MATHS.scalar(_double("CBRT"), examples=[("CBRT(8)", "2.0E0")])
def cbrt(value: float) -> float:
    """The cube root of a number."""
    approximate = math.cbrt(value)
    if not math.isfinite(approximate) or approximate == 0:
        return approximate
    exact = Fraction(value)
    near = (approximate, math.nextafter(approximate, math.inf), math.nextafter(approximate, -math.inf))
    return min(near, key=lambda root: abs(Fraction(root) ** 3 - exact))  # some C libraries miss by a digit


@MATHS.scalar(_double("EXP"), examples=[("EXP(0)", "1.0E0")])
def exp(value: float) -> float:
    """Euler's number to a power."""
    return _java(math.exp)(value)


@MATHS.scalar(_double("LN"), examples=[("LN(1)", "0.0E0")])
def ln(value: float) -> float:
    """The natural logarithm; of zero it is minus infinity, of negative numbers NaN."""
    return -math.inf if value == 0 else _java(math.log)(value)


@MATHS.scalar(_double("LOG"), examples=[("LOG(1)", "0.0E0"), ("LOG(2, 8)", "3.0E0")])
def log(value: float) -> float:
    """The natural logarithm of a number, or that to a base, which comes first."""
    return ln(value)


@MATHS.scalar("LOG(base DOUBLE, value DOUBLE) DOUBLE")
def log_base(base: float, value: float) -> float:
    return math.nan if base <= 0 or base == 1 else ln(value) / ln(base)


@MATHS.scalar("POWER(base DOUBLE, exponent DOUBLE) DOUBLE", examples=[("POWER(2, 10)", "1024.0E0")])
def power(base: float, exponent: float) -> float:
    """A number to a power."""
    if base == 0 and exponent < 0:
        return math.inf
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        return math.nan


@MATHS.scalar("PI() DOUBLE", examples=[("ROUND(PI(), 4)", "3.1416E0")])
def pi() -> float:
    """The number pi."""
    return math.pi


@MATHS.scalar("RANDOM() DOUBLE", examples=[("RANDOM() < 1E0", "true")])
def random_number() -> float:
    """A random number from 0 to 1, without 1."""
    return RANDOM.random()


@MATHS.scalar(_double("DEGREES"), examples=[("DEGREES(PI())", "180.0E0")])
def degrees(value: float) -> float:
    """An angle in radians as degrees."""
    return math.degrees(value)


@MATHS.scalar(_double("RADIANS"), examples=[("ROUND(RADIANS(180), 4)", "3.1416E0")])
def radians(value: float) -> float:
    """An angle in degrees as radians."""
    return math.radians(value)


@MATHS.scalar("ATAN2(y DOUBLE, x DOUBLE) DOUBLE", examples=[("ATAN2(0, 1)", "0.0E0")])
def atan2(y: float, x: float) -> float:
    """The angle in radians of the point (x, y) in polar coordinates."""
    return math.atan2(y, x)


@MATHS.scalar(_double("COT"), examples=[("ROUND(COT(0.785398E0), 3)", "1.0E0")])
def cot(value: float) -> float:
    """The cotangent of an angle in radians."""
    tangent = _java(math.tan)(value)
    return 1 / tangent if tangent else math.copysign(math.inf, tangent)


@MATHS.scalar(_double("SINH"), examples=[("SINH(0)", "0.0E0")])
def sinh(value: float) -> float:
    """The hyperbolic sine of a number."""
    return math.copysign(_java(math.sinh)(value), value)


def _declare(name: str, step: Callable[[float], float], meaning: str, example: tuple[str, str]) -> None:
    function = _java(step)
    function.__doc__ = meaning
    MATHS.scalar(_double(name), examples=[example])(function)


_declare("ACOS", math.acos, "The angle in radians of a cosine; NaN outside of -1 to 1.", ("ACOS(1)", "0.0E0"))
_declare("ASIN", math.asin, "The angle in radians of a sine; NaN outside of -1 to 1.", ("ASIN(0)", "0.0E0"))
_declare("ATAN", math.atan, "The angle in radians of a tangent.", ("ATAN(0)", "0.0E0"))
_declare("COS", math.cos, "The cosine of an angle in radians.", ("COS(0)", "1.0E0"))
_declare("COSH", math.cosh, "The hyperbolic cosine of a number.", ("COSH(0)", "1.0E0"))
_declare("SIN", math.sin, "The sine of an angle in radians.", ("SIN(0)", "0.0E0"))
_declare("TAN", math.tan, "The tangent of an angle in radians.", ("TAN(0)", "0.0E0"))
_declare("TANH", math.tanh, "The hyperbolic tangent of a number.", ("TANH(0)", "0.0E0"))


GEO = Family("geo")
RADIUS_KM, RADIUS_MILES = 6371, 3959
KILOMETRES, MILES = ("km", "kilometer", "kilometers", "kilometre", "kilometres"), ("mi", "mile", "miles")


@GEO.scalar(
    "GEO_DISTANCE(lat1 DOUBLE, lon1 DOUBLE, lat2 DOUBLE, lon2 DOUBLE) DOUBLE",
    examples=[("ROUND(GEO_DISTANCE(52.52E0, 13.40E0, 48.86E0, 2.35E0))", "877")],
)
def geo_distance(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """The distance of two points in degrees along the great circle, in kilometres or, with ``'MI'``, miles."""
    return _angle(lat1, lon1, lat2, lon2) * RADIUS_KM


@GEO.scalar("GEO_DISTANCE(lat1 DOUBLE, lon1 DOUBLE, lat2 DOUBLE, lon2 DOUBLE, unit STRING) DOUBLE", nulls=True)
def geo_distance_in(lat1: float, lon1: float, lat2: float, lon2: float, unit: str | None) -> float | None:
    if None in (lat1, lon1, lat2, lon2):
        return None
    unit_name = (unit or "").strip().lower() or "km"
    if unit_name not in (*KILOMETRES, *MILES):
        raise SqlValueError(f"{unit!r} is not a unit of distance: use one of {', '.join((*KILOMETRES, *MILES))}")
    return _angle(lat1, lon1, lat2, lon2) * (RADIUS_MILES if unit_name in MILES else RADIUS_KM)


def _angle(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    if not all(-90 <= latitude <= 90 for latitude in (lat1, lat2)):
        raise SqlValueError(f"latitudes must be from -90 to 90: {lat1}, {lat2}")
    if not all(-180 <= longitude <= 180 for longitude in (lon1, lon2)):
        raise SqlValueError(f"longitudes must be from -180 to 180: {lon1}, {lon2}")
    north, east = math.radians(lat2 - lat1), math.radians(lon2 - lon1)
    half = math.sin(north / 2) ** 2 + math.sin(east / 2) ** 2 * math.cos(math.radians(lat1)) * math.cos(
        math.radians(lat2)
    )
    return 2 * math.asin(min(1.0, math.sqrt(half)))
