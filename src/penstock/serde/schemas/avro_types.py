"""The column types of Avro schemas."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.serde.formats.avro import ParsedSchema

__all__ = ["column_type", "optional"]

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


def optional(branches: list[Any], parsed: ParsedSchema) -> tuple[int, Any] | None:
    """Return number and type of the branch that is not null, in a union of null and one type; None for other unions."""
    others = [(number, one) for number, one in enumerate(branches) if parsed.type_of(one)[0] != "null"]
    return others[0] if len(others) == 1 and len(branches) <= 2 else None


def column_type(parsed: ParsedSchema) -> pa.DataType | None:
    """Return the Arrow type of a schema's values; None for unions of several types and recursive records."""
    return _type(parsed.schema, parsed, ())


def _type(schema: Any, parsed: ParsedSchema, above: tuple[str, ...]) -> pa.DataType | None:
    kind, resolved = parsed.type_of(schema)
    if kind == "union":
        branch = optional(resolved, parsed)
        return None if branch is None else _type(branch[1], parsed, above)
    if kind == "record":
        if resolved["name"] in above or not resolved["fields"]:
            return None
        inner = [
            (field["name"], _type(field["type"], parsed, (*above, resolved["name"]))) for field in resolved["fields"]
        ]
        return None if any(one is None for _, one in inner) else pa.struct(inner)
    if kind in {"array", "map"}:
        item = _type(resolved["items" if kind == "array" else "values"], parsed, above)
        if item is None:
            return None
        return pa.large_list(item) if kind == "array" else pa.map_(pa.large_string(), item)
    logical = resolved.get("logicalType")
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        precision = resolved["precision"]
        return pa.decimal128(precision, resolved.get("scale", 0)) if precision <= _MAX_DIGITS else None
    if kind == "enum":
        return pa.large_string()
    if kind == "fixed":
        return pa.large_binary()
    return _LOGICAL.get((kind, logical), _PRIMITIVES.get(kind))
