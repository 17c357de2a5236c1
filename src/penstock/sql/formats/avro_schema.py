"""Avro schemas of columns, as Kafka Connect's converter makes them of ksqlDB's, and columns of Avro schemas."""

from __future__ import annotations

import json
from typing import Any

from penstock.sql.formats.interface import Columns
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
    StructType,
)

__all__ = ["DEFAULT_NAME", "avro_columns", "avro_schema", "parsed_avro"]

DEFAULT_NAME = "io.confluent.ksql.avro_schemas.KsqlDataSourceSchema"
PLAIN: dict[SqlType, Any] = {
    BOOLEAN: "boolean",
    INTEGER: "int",
    BIGINT: "long",
    DOUBLE: "double",
    STRING: "string",
    BYTES: "bytes",
    DATE: {"type": "int", "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Date"}
    | {"logicalType": "date"},
    TIME: {"type": "int", "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Time"}
    | {"logicalType": "time-millis"},
    TIMESTAMP: {"type": "long", "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Timestamp"}
    | {"logicalType": "timestamp-millis"},
}
FROM_PLAIN: dict[str, SqlType] = {
    "boolean": BOOLEAN,
    "int": INTEGER,
    "long": BIGINT,
    "float": DOUBLE,
    "double": DOUBLE,
    "string": STRING,
    "enum": STRING,
    "bytes": BYTES,
    "fixed": BYTES,
}
LOGICAL: dict[tuple[str, str], SqlType] = {
    ("int", "date"): DATE,
    ("int", "time-millis"): TIME,
    ("long", "timestamp-millis"): TIMESTAMP,
}


def avro_schema(columns: Columns, full_name: str | None, *, unwrapped: bool) -> str:
    """The text of the schema of columns.

    >>> avro_schema((("K", INTEGER),), None, unwrapped=True)
    '"int"'
    """
    name = full_name or DEFAULT_NAME
    if unwrapped:
        ((_, kind),) = columns
        return json.dumps(_type(kind, name))
    return json.dumps(_record(columns, name))


def _record(columns: Columns, name: str) -> dict[str, Any]:
    namespace, _, short = name.rpartition(".")
    fields = [
        {"name": column, "type": ["null", _type(kind, f"{name}_{column}")], "default": None} for column, kind in columns
    ]
    made: dict[str, Any] = {"type": "record", "name": short, "fields": fields, "connect.name": name}
    return made | {"namespace": namespace} if namespace else made


def _type(kind: SqlType, name: str) -> Any:
    match kind:
        case DecimalType(precision, scale):
            made = {"type": "bytes", "scale": scale, "precision": precision, "connect.version": 1}
            parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
            connect = {"connect.parameters": parameters, "connect.name": "org.apache.kafka.connect.data.Decimal"}
            return made | connect | {"logicalType": "decimal"}
        case ArrayType(element):
            return {"type": "array", "items": ["null", _type(element, name)]}
        case MapType(key, value):
            fields = [
                {"name": "key", "type": ["null", _type(key, f"{name}_key")], "default": None},
                {"name": "value", "type": ["null", _type(value, f"{name}_value")], "default": None},
            ]
            namespace, _, short = name.rpartition(".")
            entry = {"type": "record", "name": short, "namespace": namespace, "fields": fields}
            shown = {"connect.internal.type": "MapEntry"}
            return {"type": "array", "items": entry | shown, "connect.internal.type": "MapEntry"}
        case StructType(fields_):
            return _record(tuple((field.name, field.type) for field in fields_), name)
    return PLAIN[kind]


def parsed_avro(text: str) -> tuple[Any, dict[str, Any]]:
    """A schema with all references by full name, and its named types."""
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    return parse_schema(json.loads(text), named), named


def avro_columns(text: str, *, unwrapped: bool, single: str) -> Columns:
    """The columns that a schema says: those of a record, or a single one of the name ``single``.

    Fields of types that SQL lacks are left out.
    """
    schema, named = parsed_avro(text)
    schema, _ = resolved(schema, named)
    is_record = isinstance(schema, dict) and schema.get("type") == "record"
    if not is_record or unwrapped:
        kind = avro_kind(schema, named)
        return () if kind is None else ((single, kind),)
    found = [(field["name"], avro_kind(field["type"], named)) for field in schema["fields"]]
    return tuple((name, kind) for name, kind in found if kind is not None)


def resolved(schema: Any, named: dict[str, Any]) -> tuple[Any, bool]:
    """The schema behind a name or in a union with null, and whether null is allowed."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        nullable = len(others) < len(schema)
        return (resolved(others[0], named)[0], nullable) if len(others) == 1 else (schema, nullable)
    if isinstance(schema, str) and schema in named:
        return named[schema], False
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return resolved(schema["type"], named)
    return schema, False


def avro_kind(schema: Any, named: dict[str, Any]) -> SqlType | None:
    """The SQL type of a schema; ``None`` if there is none."""
    schema, _ = resolved(schema, named)
    if isinstance(schema, list):
        return None
    name = schema if isinstance(schema, str) else schema["type"]
    given: dict[str, Any] = schema if isinstance(schema, dict) else {}
    if name == "record":
        found = [(field["name"], avro_kind(field["type"], named)) for field in given["fields"]]
        return StructType.of([(field, kind) for field, kind in found if kind is not None])
    if name == "array":
        entry, _ = resolved(given["items"], named)
        if isinstance(entry, dict) and entry["type"] == "record" and entry.get("connect.internal.type") == "MapEntry":
            return _map(avro_kind(entry["fields"][1]["type"], named))
        kind = avro_kind(given["items"], named)
        return None if kind is None else ArrayType(kind)
    if name == "map":
        return _map(avro_kind(given["values"], named))
    if given.get("logicalType") == "decimal":
        return DecimalType(given["precision"], given.get("scale", 0))
    return LOGICAL.get((name, given.get("logicalType", ""))) or FROM_PLAIN.get(name)


def _map(value: SqlType | None) -> SqlType | None:
    return None if value is None else MapType(STRING, value)
