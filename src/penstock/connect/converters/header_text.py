"""The text of values in headers: Kafka's ``Values.convertToString``."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from penstock.base.java_text.simple_dates import SimpleDateFormat
from penstock.connect.data import BigInteger, DataError, Moment, Schema, Struct, java_class
from penstock.serde.data.logical import DAY_MS
from penstock.serde.data.values import java_text, number_text

__all__ = ["DATE_FORMAT", "TIMESTAMP_FORMAT", "TIME_FORMAT", "header_text", "moment_text"]

DATE_FORMAT = SimpleDateFormat("yyyy-MM-dd")
TIME_FORMAT = SimpleDateFormat("HH:mm:ss.SSS'Z'")
TIMESTAMP_FORMAT = SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def moment_text(value: Moment) -> str:
    """Return a moment as ISO 8601: of 1970-01-01 and before the time alone, at midnight the date alone.

    >>> [moment_text(Moment(ms)) for ms in (0, 86_400_000, 86_400_001)]
    ['00:00:00.000Z', '1970-01-02', '1970-01-02T00:00:00.001Z']
    """
    if value.ms < DAY_MS:
        return TIME_FORMAT.format(value.ms)
    return (TIMESTAMP_FORMAT if value.ms % DAY_MS else DATE_FORMAT).format(value.ms)


def header_text(value: Any, schema: Schema | None = None, *, embedded: bool = False) -> str:
    r"""Return the text of a value: texts as they are, lists and maps nearly as in JSON.

    Args:
        value: The value.
        schema: Its schema, which tells a float of 32 bits from one of 64.
        embedded: The value stands inside of another, so that texts are quoted.

    Raises:
        DataError: A value inside has no text.

    Example:
        >>> print(header_text({"a": [1, 'b"c', None]}))
        {"a":[1,"b\"c",null]}
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal | BigInteger):
        return number_text(value, schema)
    if isinstance(value, str | bytes):
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"' if embedded else text
    if isinstance(value, list | tuple):
        items = schema.values if schema is not None else None
        return f"[{','.join(header_text(part, items, embedded=True) for part in value)}]"
    if isinstance(value, Mapping):
        keys, values = (schema.keys, schema.values) if schema is not None else (None, None)
        return f"{{{','.join(_pair(k, keys, v, values) for k, v in value.items())}}}"
    if isinstance(value, Struct):
        pairs = (_pair(part.name, None, value.get(part), part.schema) for part in value.schema.fields)
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, Moment):
        return moment_text(value)
    raise DataError(f"Failed to serialize unexpected value type {java_class(value)}: {java_text(value)}")


def _pair(key: Any, keys: Schema | None, value: Any, values: Schema | None) -> str:
    return f"{header_text(key, keys, embedded=True)}:{header_text(value, values, embedded=True)}"
