"""Avro schemas of columns, as Kafka Connect's converter makes them of ksqlDB's, and columns of Avro schemas."""

from __future__ import annotations

import json
from typing import Any

from penstock.serde.schemas.avro_types import ParsedSchema, parse
from penstock.serde.schemas.client import SchemaText
from penstock.sql.formats.interface import Columns
from penstock.sql.formats.walks import SchemaWalk, schema_document
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

__all__ = ["DEFAULT_NAME", "avro_columns", "avro_schema", "is_entries", "member_name", "parsed_avro", "resolved"]

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


def parsed_avro(schema: SchemaText) -> ParsedSchema:
    """A schema with all references by full name, and its named types.

    Raises:
        ValueError: It is not an Avro schema.
    """
    for _, text in (*schema.referred, ("", schema.text)):
        schema_document(text)
    try:
        return parse(schema)
    except RecursionError as error:
        raise ValueError("its types are nested too deep") from error


def avro_columns(schema: SchemaText, *, unwrapped: bool, single: str) -> Columns:
    """The columns that a schema says: those of a record, or a single one of the name ``single``.

    Fields of types that SQL lacks are left out.

    Raises:
        ValueError: It is not an Avro schema, or a type of it holds itself.
    """
    parsed = parsed_avro(schema)
    root = resolved(parsed.schema, parsed)
    word, given = parsed.type_of(root)
    if word != "record" or unwrapped:
        kind = _kind(root, parsed, SchemaWalk())
        return () if kind is None else ((single, kind),)
    walk = SchemaWalk()
    with walk.inside(given["name"]):
        found = [(field["name"], _kind(field["type"], parsed, walk)) for field in given["fields"]]
    return tuple((name, kind) for name, kind in found if kind is not None)


def resolved(schema: Any, parsed: ParsedSchema) -> Any:
    """The schema behind a name, and that beside null in a union of the two."""
    word, given = parsed.type_of(schema)
    if word != "union":
        return given if word in ("record", "array", "map", "enum", "fixed") or len(given) > 1 else word
    others = [branch for branch in given if parsed.type_of(branch)[0] != "null"]
    return resolved(others[0], parsed) if len(others) == 1 else given


def is_entries(items: Any, parsed: ParsedSchema) -> bool:
    """Whether the items of an array are the entries of a map, as Kafka Connect writes maps of other keys than texts."""
    word, entry = parsed.type_of(items)
    return word == "record" and entry.get("connect.internal.type") == "MapEntry" and len(entry["fields"]) == 2


def member_name(branch: Any, parsed: ParsedSchema) -> str:
    """The name that Kafka Connect gives a member of a union of several types: that of its type, without a namespace."""
    word, given = parsed.type_of(branch)
    name: str = given["name"].rpartition(".")[2] if word in ("record", "enum", "fixed") else word
    return name


def _kind(schema: Any, parsed: ParsedSchema, walk: SchemaWalk) -> SqlType | None:
    """The SQL type of a schema; ``None`` if there is none."""
    walk.field()
    schema = resolved(schema, parsed)
    word, given = parsed.type_of(schema)
    if word in ("union", "record", "array", "map"):
        with walk.inside(given["name"] if word == "record" else ""):
            return _nested(word, given, parsed, walk)
    logical = given.get("logicalType", "")
    if logical == "decimal" and isinstance(given.get("precision"), int):
        return DecimalType(given["precision"], given.get("scale", 0))
    return LOGICAL.get((word, logical)) or FROM_PLAIN.get(word)


def _nested(word: str, given: Any, parsed: ParsedSchema, walk: SchemaWalk) -> SqlType | None:
    if word == "union":
        branches = [branch for branch in given if parsed.type_of(branch)[0] != "null"]
        pairs = [(member_name(branch, parsed), _kind(branch, parsed, walk)) for branch in branches]
    elif word == "record":
        pairs = [(field["name"], _kind(field["type"], parsed, walk)) for field in given["fields"]]
    elif word == "map":
        return _map(_kind(given["values"], parsed, walk))
    elif is_entries(given["items"], parsed):
        return _map(_kind(parsed.type_of(given["items"])[1]["fields"][1]["type"], parsed, walk))
    else:
        kind = _kind(given["items"], parsed, walk)
        return None if kind is None else ArrayType(kind)
    fields = [(name, kind) for name, kind in pairs if kind is not None]
    return StructType.of(fields) if fields else None


def _map(value: SqlType | None) -> SqlType | None:
    return None if value is None else MapType(STRING, value)
