"""Schemas for values that have none, so that plain dicts can be written with a registry."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from penstock.connect.data import (
    DATE,
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    TIMESTAMP,
    DataError,
    Moment,
    Schema,
    Struct,
    array,
    decimal_schema,
    struct,
)

__all__ = ["with_schema"]

SIMPLE: tuple[tuple[type, Schema], ...] = (
    (bool, OPTIONAL_BOOLEAN),
    (int, OPTIONAL_INT64),
    (float, OPTIONAL_FLOAT64),
    (str, OPTIONAL_STRING),
    (bytes, OPTIONAL_BYTES),
    (datetime, TIMESTAMP.as_optional()),
    (date, DATE.as_optional()),
    (Moment, TIMESTAMP.as_optional()),
)


def with_schema(value: Any) -> tuple[Schema, Any]:
    """The optional schema that fits a value, and the value with structs in place of dicts.

    Raises:
        DataError: A value in it has no type that Connect knows, or the elements of a list have none in common.

    Example:
        >>> schema, value = with_schema({"path": "/", "status": 200})
        >>> str(schema.field("status").schema), value["path"]
        ('Schema{INT64}', '/')
    """
    if isinstance(value, Struct):
        return value.schema, value
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        parts = {key: with_schema(each) for key, each in value.items() if each is not None}
        schema = struct({key: part[0] for key, part in parts.items()}, optional=True)
        return schema, Struct(schema, {key: part[1] for key, part in parts.items()})
    if isinstance(value, dict):
        raise DataError("a map whose keys are not all strings needs a schema")
    if isinstance(value, list):
        made = [with_schema(each) for each in value if each is not None]
        kinds = {schema for schema, _ in made}
        if len(kinds) > 1:
            raise DataError("a list whose elements differ in type needs a schema")
        return array(next(iter(kinds), OPTIONAL_STRING), optional=True), [part[1] for part in made]
    if isinstance(value, Decimal):
        return decimal_schema(-int(value.as_tuple().exponent)).as_optional(), value
    for kind, schema in SIMPLE:
        if isinstance(value, kind):
            return schema, Moment.of(value) if isinstance(value, date) else value
    raise DataError(f"a value of type {type(value).__name__} needs a schema")
