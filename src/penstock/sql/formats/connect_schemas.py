"""Connect's schemas of columns, and columns of Connect's schemas: what lies between SQL and schemas in a registry."""

from __future__ import annotations

from penstock.serde.data import (
    DATE,
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    TIME,
    TIMESTAMP,
    Schema,
    Type,
    array,
)
from penstock.serde.data import struct as struct_of
from penstock.serde.data.logical import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME
from penstock.serde.formats.avro import PRECISION
from penstock.serde.formats.schema_text import SchemaWalk
from penstock.sql import types as sql
from penstock.sql.formats.format import Columns
from penstock.sql.types import ArrayType, DecimalType, MapType, SqlType, StructType

__all__ = ["columns_schema", "schema_columns", "type_schema"]

PLAIN: dict[SqlType, Schema] = {
    sql.BOOLEAN: OPTIONAL_BOOLEAN,
    sql.INTEGER: OPTIONAL_INT32,
    sql.BIGINT: OPTIONAL_INT64,
    sql.DOUBLE: OPTIONAL_FLOAT64,
    sql.STRING: OPTIONAL_STRING,
    sql.BYTES: OPTIONAL_BYTES,
    sql.DATE: DATE.as_optional(),
    sql.TIME: TIME.as_optional(),
    sql.TIMESTAMP: TIMESTAMP.as_optional(),
}
LOGICAL: dict[str | None, SqlType] = {DATE_NAME: sql.DATE, TIME_NAME: sql.TIME, TIMESTAMP_NAME: sql.TIMESTAMP}
READ: dict[Type, SqlType] = {
    Type.INT8: sql.INTEGER,
    Type.INT16: sql.INTEGER,
    Type.INT32: sql.INTEGER,
    Type.INT64: sql.BIGINT,
    Type.FLOAT32: sql.DOUBLE,
    Type.FLOAT64: sql.DOUBLE,
    Type.BOOLEAN: sql.BOOLEAN,
    Type.STRING: sql.STRING,
    Type.BYTES: sql.BYTES,
}


def columns_schema(columns: Columns, name: str | None = None, keys: Schema = OPTIONAL_STRING) -> Schema:
    """Return the schema of rows.

    Args:
        columns: The columns.
        name: The full name; structs and maps in it have names that begin with it. None: none has a name.
        keys: The schema of the keys of maps.
    """
    inner = [(column, type_schema(kind, _below(name, column), keys)) for column, kind in columns]
    return struct_of(inner, name=name)


def type_schema(kind: SqlType, name: str | None = None, keys: Schema = OPTIONAL_STRING) -> Schema:
    """Return the schema of a column, which may be null; see `columns_schema`.

    >>> str(type_schema(StructType.of([("X", sql.DATE)]), "a.B")), str(type_schema(ArrayType(sql.BYTES)).values)
    ('Schema{a.B:STRUCT}', 'Schema{BYTES}')
    """
    match kind:
        case DecimalType(precision, scale):
            parameters = {"scale": str(scale), PRECISION: str(precision)}
            connect_schema = Schema(Type.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters)
        case ArrayType(element):
            connect_schema = array(type_schema(element, name, keys))
        case MapType(_, value):
            connect_schema = Schema(
                Type.MAP, name=name, keys=keys, values=type_schema(value, _below(name, "MapValue"), keys)
            )
        case StructType(fields):
            connect_schema = columns_schema(tuple((field.name, field.type) for field in fields), name, keys)
        case _:
            connect_schema = PLAIN[kind]
    return connect_schema.as_optional()


def _below(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}_{part}"


def schema_columns(schema: Schema, *, unwrapped: bool, single: str) -> Columns:
    """Return the columns that a schema has: those of a struct, or a single one of the name ``single``.

    Fields of types that SQL lacks are left out.

    Raises:
        DataError: Its types are nested too deep, or have too many fields.
    """
    kind = _kind(schema, SchemaWalk())
    if isinstance(kind, StructType) and not unwrapped:
        return tuple((field.name, field.type) for field in kind.fields)
    return () if kind is None else ((single, kind),)


def _kind(schema: Schema | None, walk: SchemaWalk) -> SqlType | None:
    """Return the type of a schema; None if SQL has none."""
    if schema is None:
        return None
    walk.field()
    if schema.name == DECIMAL_NAME:
        parameters = schema.parameters or {}
        return DecimalType(int(parameters.get(PRECISION, 64)), int(parameters.get("scale", 0)))
    if schema.name in LOGICAL:
        return LOGICAL[schema.name]
    if schema.type in READ:
        return READ[schema.type]
    with walk.inside():
        if schema.type is Type.STRUCT:
            fields = [(part.name, _kind(part.schema, walk)) for part in schema.fields]
            return StructType.of([(name, kind) for name, kind in fields if kind is not None])
        element = _kind(schema.values, walk)
    if element is None:
        return None
    return ArrayType(element) if schema.type is Type.ARRAY else MapType(sql.STRING, element)
