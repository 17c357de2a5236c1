"""Values as text, as Java prints them: what CAST to STRING, concatenation with ``+`` and CONCAT_WS show."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.sql.types.numbers import decimal_text, double_text
from penstock.sql.types.sql_type import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL_UNIT,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    StructType,
)
from penstock.sql.types.times import date_text, time_text, timestamp_text
from penstock.sql.types.type_errors import SqlTypeError

__all__ = ["text_function", "to_text"]

PLAIN: dict[SqlType, Callable[[Any], str]] = {
    BOOLEAN: lambda value: "true" if value else "false",
    INTEGER: str,
    BIGINT: str,
    DOUBLE: double_text,
    STRING: str,
    DATE: date_text,
    TIME: time_text,
    TIMESTAMP: timestamp_text,
    INTERVAL_UNIT: str,
    NULL: lambda _: "null",
}


def text_function(kind: SqlType) -> Callable[[Any], str]:
    """Return the function that writes values of a type; a null inside of a value, or the value itself, is ``null``.

    >>> text_function(ArrayType(DOUBLE))([1e7, None])
    '[1.0E7, null]'
    >>> text_function(StructType.of(A=INTEGER, B=STRING))({"A": 1, "B": "x"})
    'Struct{A=1,B=x}'
    """
    write: Callable[[Any], str]
    match kind:
        case DecimalType():
            write = _decimal
        case ArrayType(element):
            item = text_function(element)
            write = lambda value: "[" + ", ".join(map(item, value)) + "]"  # noqa: E731
        case MapType(key, inner):
            left, right = text_function(key), text_function(inner)
            write = lambda value: "{" + ", ".join(f"{left(k)}={right(v)}" for k, v in value.items()) + "}"  # noqa: E731
        case StructType(fields):
            parts = [(field.name, text_function(field.type)) for field in fields]
            write = lambda value: _struct(value, parts)  # noqa: E731
        case _ if kind in PLAIN:
            write = PLAIN[kind]
        case _ if kind == BYTES:
            raise SqlTypeError("No CAST turns BYTES into STRING: use FROM_BYTES with an encoding")
        case _:
            raise SqlTypeError(f"{kind} has no text")
    return lambda value: "null" if value is None else write(value)


def to_text(value: Any, kind: SqlType) -> str:
    """Return one value of a type as text."""
    return text_function(kind)(value)


def _decimal(value: Decimal) -> str:
    return decimal_text(value)


def _struct(value: dict[str, Any], parts: list[tuple[str, Callable[[Any], str]]]) -> str:
    shown = (f"{name}={write(value[name])}" for name, write in parts if value.get(name) is not None)
    return "Struct{" + ",".join(shown) + "}"
