"""Values as JSON text, by their types, as Jackson writes them: decimals plain, NaN as text, days and milliseconds."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from datetime import date, time
from json.encoder import encode_basestring
from typing import Any

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
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    SqlTypeError,
    StructType,
)
from penstock.sql.types.numbers import decimal_text, double_text
from penstock.sql.types.times import days_of, millis_of_day

__all__ = ["json_writer", "object_writer"]

Write = Callable[[Any], str]


def json_writer(kind: SqlType) -> Write:
    """Return the function that writes values of a type as JSON.

    >>> from decimal import Decimal
    >>> json_writer(ArrayType(DecimalType(4, 2)))([Decimal("1.50"), None])
    '[1.50,null]'
    >>> json_writer(DOUBLE)(math.nan)
    '"NaN"'
    """
    write = _writer(kind)
    return lambda value: "null" if value is None else write(value)


def object_writer(fields: list[tuple[str, SqlType]]) -> Callable[[Any], str]:
    """Return the function that writes values in the order of fields as a JSON object."""
    parts = [(f"{encode_basestring(name)}:", json_writer(kind)) for name, kind in fields]

    def write(values: Any) -> str:
        return "{" + ",".join([name + text(value) for (name, text), value in zip(parts, values, strict=True)]) + "}"

    return write


def _writer(kind: SqlType) -> Write:
    match kind:
        case DecimalType():
            return decimal_text
        case ArrayType(element):
            item = json_writer(element)
            return lambda values: "[" + ",".join([item(value) for value in values]) + "]"
        case MapType(_, inner):
            value = json_writer(inner)
            return lambda entries: (
                "{" + ",".join([f"{encode_basestring(str(k))}:{value(v)}" for k, v in entries.items()]) + "}"
            )
        case StructType(fields):
            names = [field.name for field in fields]
            inside = object_writer([(field.name, field.type) for field in fields])
            return lambda row: inside([row.get(name) for name in names])
    if kind not in PLAIN:
        raise SqlTypeError(f"{kind} has no JSON form")
    return PLAIN[kind]


def _double(value: float) -> str:
    if 1e-3 <= abs(value) < 1e7:
        return repr(value)  # the same as Java's there
    text = double_text(value)
    return text if math.isfinite(value) else f'"{text}"'


def _bytes(value: bytes) -> str:
    return f'"{b64encode(value).decode()}"'


def _days(value: date) -> str:
    return str(days_of(value))


def _millis(value: time) -> str:
    return str(millis_of_day(value))


PLAIN: dict[SqlType, Write] = {
    BOOLEAN: lambda value: "true" if value else "false",
    INTEGER: str,
    BIGINT: str,
    DOUBLE: _double,
    STRING: encode_basestring,
    BYTES: _bytes,
    DATE: _days,
    TIME: _millis,
    TIMESTAMP: str,
}
