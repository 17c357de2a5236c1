"""Values that schemas' own serdes read, to values of the columns' types: numbers widen or become text, names match."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from penstock.sql.formats.json_values import exact, pick
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    DecimalType,
    SqlType,
    SqlTypeError,
    SqlValueError,
)
from penstock.sql.types.conversions import nested_conversion
from penstock.sql.types.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, decimal_text, double_text, to_decimal
from penstock.sql.types.texts import date_of, from_datetime, time_of

__all__ = ["foreign_reader"]

Read = Callable[[Any], Any]


def foreign_reader(kind: SqlType) -> Read:
    """Return the function that makes values of a type of those that another serde has read.

    >>> from penstock.sql.types import MapType
    >>> foreign_reader(MapType(STRING, DOUBLE))([{"key": "a", "value": 1}])
    {'a': 1.0}

    It raises `SqlValueError` for what is not a value of the type.
    """
    read = _reader(kind)
    return lambda value: None if value is None else read(value)


def _reader(kind: SqlType) -> Read:
    nested = nested_conversion(
        kind,
        foreign_reader,
        elements=lambda value: _of(value, list, kind),
        entries=lambda value: _entries(value, kind),
        members=lambda value, names: pick(_of(value, dict, kind), names),
    )
    if nested is not None:
        return nested
    if isinstance(kind, DecimalType):
        return lambda value: exact(to_decimal(value), kind)
    if kind not in PLAIN:
        raise SqlTypeError(f"{kind} has no form in schemas")
    return PLAIN[kind]


def _entries(value: Any, kind: SqlType) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return [(entry["key"], entry["value"]) for entry in _of(value, list, kind)]


def _of(value: Any, expected: type, kind: SqlType) -> Any:
    if not isinstance(value, expected):
        raise _wrong(value, kind)
    return value


def _wrong(value: Any, kind: SqlType) -> SqlValueError:
    return SqlValueError(f"{type(value).__name__} instead of {kind}")


def _whole(value: Any, low: int, high: int, kind: SqlType) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not low <= value <= high:
        raise _wrong(value, kind)
    return int(value)


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong(value, DOUBLE)
    return float(value)


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return double_text(value)
        case Decimal():
            return decimal_text(value)
        case int():
            return str(value)
        case bytes():
            return b64encode(value).decode()
    raise _wrong(value, STRING)


def _date(value: Any) -> date:
    return value if type(value) is date else date_of(_whole(value, INT_MIN, INT_MAX, DATE))


def _time(value: Any) -> time:
    return value if type(value) is time else time_of(_whole(value, INT_MIN, INT_MAX, TIME))


def _timestamp(value: Any) -> int:
    return from_datetime(value) if isinstance(value, datetime) else _whole(value, LONG_MIN, LONG_MAX, TIMESTAMP)


PLAIN: dict[SqlType, Read] = {
    BOOLEAN: lambda value: _of(value, bool, BOOLEAN),
    INTEGER: lambda value: _whole(value, INT_MIN, INT_MAX, INTEGER),
    BIGINT: lambda value: _whole(value, LONG_MIN, LONG_MAX, BIGINT),
    DOUBLE: _double,
    STRING: _text,
    BYTES: lambda value: _of(value, bytes, BYTES),
    DATE: _date,
    TIME: _time,
    TIMESTAMP: _timestamp,
}
