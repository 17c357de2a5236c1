"""Columns of Arrow as the values and schemas of records."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.types as t

from penstock.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Moment,
    Schema,
    Struct,
    Type,
    array,
    decimal_schema,
    map_of,
    struct,
)
from penstock.errors import ConnectError

__all__ = ["schema_of", "value_of"]

_PLAIN = (
    (t.is_boolean, BOOLEAN), (t.is_int8, INT8), (t.is_int16, INT16), (t.is_int32, INT32), (t.is_int64, INT64),
    (t.is_float32, FLOAT32), (t.is_float64, FLOAT64), (t.is_string, STRING), (t.is_large_string, STRING),
    (t.is_binary, BYTES), (t.is_large_binary, BYTES), (t.is_date, DATE), (t.is_timestamp, TIMESTAMP), (t.is_time, TIME),
)  # fmt: skip


def schema_of(kind: pa.DataType) -> Schema:
    """Return the schema of a column's values, all of which may be null.

    Raises:
        ConnectError: Connect has no such type.

    Example:
        >>> str(schema_of(pa.list_(pa.int32())).type), schema_of(pa.int64()).optional
        ('ARRAY', True)
    """
    for fits, schema in _PLAIN:
        if fits(kind):
            return schema.as_optional()
    if t.is_decimal(kind):
        return decimal_schema(kind.scale).as_optional()
    if t.is_struct(kind):
        return struct({field.name: schema_of(field.type) for field in kind}).as_optional()
    if t.is_list(kind) or t.is_large_list(kind):
        return array(schema_of(kind.value_type)).as_optional()
    if t.is_map(kind):
        return map_of(schema_of(kind.key_type), schema_of(kind.item_type)).as_optional()
    raise ConnectError(
        f"Connect has no type for a column of {kind}", hint="Cast the column, or leave it out of what is read."
    )


def value_of(value: Any, schema: Schema) -> Any:
    """Return a value of a row as that of a record."""
    if value is None:
        return None
    if schema.type is Type.STRUCT:
        return Struct(schema, {part.name: value_of(value[part.name], part.schema) for part in schema.fields})
    if schema.type is Type.ARRAY and schema.values is not None:
        return [value_of(each, schema.values) for each in value]
    if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        pairs = value.items() if isinstance(value, dict) else value
        return {value_of(key, schema.keys): value_of(each, schema.values) for key, each in pairs}
    return Moment.of(value) if isinstance(value, date | datetime | time) else value
