"""JSON schemas of columns, as Kafka Connect's converter makes them, and columns of JSON schemas."""

from __future__ import annotations

import json
from typing import Any

from penstock.serde.formats.walks import SchemaWalk
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

__all__ = ["json_columns", "json_schema"]

CONNECT = "org.apache.kafka.connect.data"
PLAIN: dict[SqlType, dict[str, Any]] = {
    BOOLEAN: {"type": "boolean"},
    INTEGER: {"type": "integer", "connect.type": "int32"},
    BIGINT: {"type": "integer", "connect.type": "int64"},
    DOUBLE: {"type": "number", "connect.type": "float64"},
    STRING: {"type": "string"},
    BYTES: {"type": "string", "connect.type": "bytes"},
    DATE: {"type": "integer", "title": f"{CONNECT}.Date", "connect.version": 1, "connect.type": "int32"},
    TIME: {"type": "integer", "title": f"{CONNECT}.Time", "connect.version": 1, "connect.type": "int32"},
    TIMESTAMP: {"type": "integer", "title": f"{CONNECT}.Timestamp", "connect.version": 1, "connect.type": "int64"},
}
TITLES: dict[str, SqlType] = {f"{CONNECT}.Date": DATE, f"{CONNECT}.Time": TIME, f"{CONNECT}.Timestamp": TIMESTAMP}
WHOLE: dict[str, SqlType] = {"int8": INTEGER, "int16": INTEGER, "int32": INTEGER, "int64": BIGINT}


def json_schema(columns: Columns, *, unwrapped: bool) -> str:
    """The text of the schema of columns."""
    return json.dumps(_nullable(columns[0][1]) if unwrapped else _object(columns))


def _object(columns: Columns) -> dict[str, Any]:
    properties = {name: {"connect.index": at, **_nullable(kind)} for at, (name, kind) in enumerate(columns)}
    return {"type": "object", "properties": properties}


def _nullable(kind: SqlType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _type(kind)]}


def _type(kind: SqlType) -> dict[str, Any]:
    match kind:
        case DecimalType(precision, scale):
            parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
            made = {"type": "number", "title": f"{CONNECT}.Decimal", "connect.version": 1, "connect.type": "bytes"}
            return made | {"connect.parameters": parameters}
        case ArrayType(element):
            return {"type": "array", "items": _nullable(element)}
        case MapType(_, value):
            return {"type": "object", "connect.type": "map", "additionalProperties": _nullable(value)}
        case StructType(fields):
            return _object(tuple((field.name, field.type) for field in fields))
    return PLAIN[kind]


def json_columns(text: str, *, unwrapped: bool, single: str) -> Columns:
    """The columns that a schema says: those of an object, or a single one of the name ``single``.

    Properties of types that SQL lacks are left out.

    Raises:
        ValueError: It is not JSON, or a type of it holds itself.
    """
    document = json.loads(text)
    kind = _kind(document, document, SchemaWalk())
    if isinstance(kind, StructType) and not unwrapped:
        return tuple((field.name, field.type) for field in kind.fields)
    return () if kind is None else ((single, kind),)


def _kind(schema: Any, root: Any, walk: SchemaWalk) -> SqlType | None:
    if not isinstance(schema, dict):
        return None
    walk.field()
    if isinstance(reference := schema.get("$ref"), str):
        with walk.inside(reference):
            return _kind(_found(reference, root), root, walk)
    with walk.inside("#" if schema is root else ""):
        return _without_reference(schema, root, walk)


def _without_reference(schema: dict[str, Any], root: Any, walk: SchemaWalk) -> SqlType | None:
    for word in ("oneOf", "anyOf"):
        others = [branch for branch in schema.get(word, ()) if branch != {"type": "null"}]
        if others:
            return _kind(others[0], root, walk) if len(others) == 1 else None
    if schema.get("title") == f"{CONNECT}.Decimal":
        given = schema.get("connect.parameters", {})
        return DecimalType(int(given.get("connect.decimal.precision", 64)), int(given.get("scale", 0)))
    if (titled := TITLES.get(schema.get("title", ""))) is not None:
        return titled
    return _typed(schema, root, walk)


def _typed(schema: dict[str, Any], root: Any, walk: SchemaWalk) -> SqlType | None:
    name = schema.get("type")
    if isinstance(name, list):
        name = next((each for each in name if each != "null"), None)
    connect = schema.get("connect.type", "")
    if name == "integer":
        return WHOLE.get(connect, BIGINT)
    if name == "string":
        return BYTES if connect == "bytes" else STRING
    if name == "array":
        element = _kind(schema.get("items"), root, walk)
        return None if element is None else ArrayType(element)
    if name == "object" and "properties" not in schema and "additionalProperties" in schema:
        value = _kind(schema["additionalProperties"], root, walk)
        return None if value is None else MapType(STRING, value)
    if name == "object":
        properties = list(schema.get("properties", {}).items())
        properties.sort(key=lambda pair: pair[1].get("connect.index", 0) if isinstance(pair[1], dict) else 0)
        found = [(key, _kind(inner, root, walk)) for key, inner in properties]
        return StructType.of([(key, kind) for key, kind in found if kind is not None])
    return {"boolean": BOOLEAN, "number": DOUBLE}.get(str(name))


def _found(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found
