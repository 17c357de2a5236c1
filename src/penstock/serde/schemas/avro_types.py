"""The column types of Avro schemas."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.serde.registry.avro_rules import type_of
from penstock.serde.schemas.client import SchemaText

__all__ = ["ParsedSchema", "column_schema", "column_type", "optional", "parse"]

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.large_binary(),
    "string": pa.large_string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_MAX_DIGITS = 38


class ParsedSchema:
    """A schema as fastavro has it, with the types that its names stand for."""

    __slots__ = ("names", "schema")

    def __init__(self, schema: Any, names: dict[str, Any]) -> None:
        self.schema = schema
        self.names = names

    def type_of(self, schema: Any) -> tuple[str, Any]:
        """Return the kind ("record", "union", "int", ...), and its definition."""
        return type_of(schema, self.names)


@lru_cache(maxsize=1024)
def parse(text: SchemaText) -> ParsedSchema:
    """Return the schema of a text, parsed once per process.

    Raises:
        ValueError: It is not an Avro schema.
    """
    return _parsed(text, lambda schema: schema)


@lru_cache(maxsize=1024)
def column_schema(text: SchemaText) -> ParsedSchema:
    """Return the schema for columns: a UUID stays text, as columns have no type for it."""
    return _parsed(text, _without_uuid)


def _parsed(text: SchemaText, change: Any) -> ParsedSchema:
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    names: dict[str, Any] = {}
    try:
        for _, other in text.referred:
            parse_schema(change(json.loads(other)), named_schemas=names)
        return ParsedSchema(parse_schema(change(json.loads(text.text)), named_schemas=names), names)
    except (SchemaParseException, UnknownType, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__} {error}") from error


def _without_uuid(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_uuid(branch) for branch in schema]
    if isinstance(schema, dict):
        kept = {name: _without_uuid(value) if name != "default" else value for name, value in schema.items()}
        if kept.get("logicalType") == "uuid":
            del kept["logicalType"]
        return kept
    return schema


def optional(branches: list[Any], parsed: ParsedSchema) -> tuple[int, Any] | None:
    """Return number and type of the branch that is not null, in a union of null and one type; None for other unions."""
    others = [(number, one) for number, one in enumerate(branches) if parsed.type_of(one)[0] != "null"]
    return others[0] if len(others) == 1 and len(branches) <= 2 else None


def column_type(parsed: ParsedSchema) -> pa.DataType | None:
    """Return the Arrow type of a schema's values; None for unions of several types and recursive records."""
    return _type(parsed.schema, parsed, ())


def _type(schema: Any, parsed: ParsedSchema, above: tuple[str, ...]) -> pa.DataType | None:
    kind, found = parsed.type_of(schema)
    if kind == "union":
        branch = optional(found, parsed)
        return None if branch is None else _type(branch[1], parsed, above)
    if kind == "record":
        if found["name"] in above or not found["fields"]:
            return None
        inner = [(field["name"], _type(field["type"], parsed, (*above, found["name"]))) for field in found["fields"]]
        return None if any(one is None for _, one in inner) else pa.struct(inner)
    if kind in {"array", "map"}:
        item = _type(found["items" if kind == "array" else "values"], parsed, above)
        if item is None:
            return None
        return pa.large_list(item) if kind == "array" else pa.map_(pa.large_string(), item)
    logical = found.get("logicalType")
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        precision = found["precision"]
        return pa.decimal128(precision, found.get("scale", 0)) if precision <= _MAX_DIGITS else None
    if kind == "enum":
        return pa.large_string()
    if kind == "fixed":
        return pa.large_binary()
    return _LOGICAL.get((kind, logical), _PRIMITIVES.get(kind))
