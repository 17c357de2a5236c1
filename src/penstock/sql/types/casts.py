"""CAST: which types can be cast to which, and how values change."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.sql.types.numbers import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    fit,
    parse_decimal,
    parse_double,
    parse_whole,
    saturate,
    wrap_int,
    wrap_long,
)
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
    StructType,
    is_numeric,
)
from penstock.sql.types.texts import text_function
from penstock.sql.types.times import DAY_MS, date_of, days_of, parse_date, parse_time, parse_timestamp, time_of_day
from penstock.sql.types.type_errors import SqlTypeError

__all__ = ["cast", "cast_function", "parse_boolean"]

Convert = Callable[[Any], Any]


def parse_boolean(text: str) -> bool:
    """Text as a boolean: any beginning of ``true`` or ``yes`` is true, in any case; all else is false.

    >>> parse_boolean("T"), parse_boolean("ye"), parse_boolean("on")
    (True, True, False)
    """
    lowered = text.strip().lower()
    return bool(lowered) and ("true".startswith(lowered) or "yes".startswith(lowered))


SIMPLE: dict[tuple[SqlType, SqlType], Convert] = {
    (STRING, BOOLEAN): parse_boolean,
    (STRING, INTEGER): lambda text: parse_whole(text, INT_MIN, INT_MAX),
    (STRING, BIGINT): lambda text: parse_whole(text, LONG_MIN, LONG_MAX),
    (STRING, DOUBLE): parse_double,
    (STRING, DATE): parse_date,
    (STRING, TIME): parse_time,
    (STRING, TIMESTAMP): parse_timestamp,
    (BIGINT, INTEGER): wrap_int,
    (INTEGER, BIGINT): int,
    (INTEGER, DOUBLE): float,
    (BIGINT, DOUBLE): float,
    (DOUBLE, INTEGER): lambda value: saturate(value, INT_MIN, INT_MAX),
    (DOUBLE, BIGINT): lambda value: saturate(value, LONG_MIN, LONG_MAX),
    (TIMESTAMP, DATE): lambda value: date_of(value // DAY_MS),
    (TIMESTAMP, TIME): time_of_day,
    (DATE, TIMESTAMP): lambda value: days_of(value) * DAY_MS,
}
FROM_DECIMAL: dict[SqlType, Convert] = {
    INTEGER: lambda value: wrap_int(int(value)),
    BIGINT: lambda value: wrap_long(int(value)),
    DOUBLE: float,
}


def cast_function(source: SqlType, target: SqlType) -> Convert:
    """Return the conversion of values by ``CAST(... AS target)``; null stays null.

    >>> cast_function(BIGINT, INTEGER)(2**31)
    -2147483648
    >>> cast_function(STRING, DecimalType(2, 1))("0.99")
    Decimal('1.0')

    Raises:
        SqlTypeError: there is no such cast. The conversion itself raises `SqlValueError` for values that do not fit.
    """
    convert = _convert(source, target)
    return lambda value: None if value is None else convert(value)


def cast(value: Any, source: SqlType, target: SqlType) -> Any:
    """Cast one value."""
    return cast_function(source, target)(value)


def _convert(source: SqlType, target: SqlType) -> Convert:
    if source in (target, NULL):
        return lambda value: value
    if (convert := SIMPLE.get((source, target))) is not None:
        return convert
    if target == STRING and source != BYTES:
        return text_function(source)
    match source, target:
        case DecimalType(), _ if target in FROM_DECIMAL:
            return FROM_DECIMAL[target]
        case _, DecimalType() if source == STRING:
            return lambda text: fit(parse_decimal(text), target)
        case _, DecimalType() if is_numeric(source):
            return lambda value: _fit(value, target)
        case ArrayType(inner), ArrayType(outer):
            item = cast_function(inner, outer)
            return lambda values: [item(value) for value in values]
        case MapType(key, value), MapType(other_key, other_value):
            left, right = cast_function(key, other_key), cast_function(value, other_value)
            return lambda values: {left(k): right(v) for k, v in values.items()}
        case StructType(), StructType(fields):
            members = [(f.name, source.field(f.name), f.type) for f in fields]
            steps = [(name, cast_function(old or NULL, new)) for name, old, new in members]
            held = {name for name, old, _ in members if old is not None}
            return lambda row: {name: step(row.get(name)) if name in held else None for name, step in steps}
    raise SqlTypeError(f"No CAST turns {source} into {target}")


def _fit(value: float | Decimal, target: DecimalType) -> Decimal:
    return fit(value, target)
