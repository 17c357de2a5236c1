"""Functions of JSON in text."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any

from penstock.sql.functions.json_values import MISSING, at_path, parse_json, write_json
from penstock.sql.functions.registry import Family
from penstock.sql.types import TIMESTAMP, ArrayType, MapType, SqlType, SqlValueError, StructType
from penstock.sql.types.times import date_text, time_text, timestamp_text

__all__ = ["JSON_FUNCTIONS"]

JSON_FUNCTIONS = Family("json")
KINDS = ("STRING", "INTEGER", "BIGINT", "DOUBLE", "BOOLEAN")


@JSON_FUNCTIONS.scalar(
    "EXTRACTJSONFIELD(json STRING, path STRING) STRING",
    examples=[("""EXTRACTJSONFIELD('{"a": [1, {"b": "x"}]}', '$.a[1].b')""", "'x'")],
)
def extract_json_field(text: str, path: str) -> str | None:
    """The value at a path in JSON: texts as they are, all else as JSON; null if it is not there."""
    found = at_path(parse_json(text), path)
    return None if found is MISSING else _shown(found)


def _shown(value: Any) -> str:
    """A value of a JSON text: texts as they are, all else as JSON, with decimals as Java's BigDecimal shows them."""
    return value if isinstance(value, str) else write_json(value, decimal=str)


@JSON_FUNCTIONS.scalar(
    "IS_JSON_STRING(text STRING) BOOLEAN", nulls=True, examples=[("IS_JSON_STRING('[1, 2]')", "true")]
)
def is_json_string(text: str | None) -> bool:
    """Whether a text is JSON."""
    try:
        return text is not None and parse_json(text) is not MISSING
    except SqlValueError:
        return False


@JSON_FUNCTIONS.scalar(
    *(f"JSON_ARRAY_CONTAINS(json STRING, value {kind}) BOOLEAN" for kind in KINDS),
    nulls=True,
    examples=[("JSON_ARRAY_CONTAINS('[1, 2, \"x\"]', 2)", "true")],
)
def json_array_contains(text: str | None, value: Any) -> bool:
    """Whether a JSON array holds a value."""
    if text is None:
        return False
    try:
        array = parse_json(text)
    except SqlValueError:
        return False
    if isinstance(value, float):
        return isinstance(array, list) and any(isinstance(item, Decimal) and float(item) == value for item in array)
    return isinstance(array, list) and any(type(item) is type(value) and item == value for item in array)


@JSON_FUNCTIONS.scalar("JSON_ARRAY_LENGTH(json STRING) INTEGER", examples=[("JSON_ARRAY_LENGTH('[1, 2]')", "2")])
def json_array_length(text: str) -> int | None:
    """The number of elements of a JSON array; null for all else."""
    array = parse_json(text)
    return len(array) if isinstance(array, list) else None


@JSON_FUNCTIONS.scalar(
    "JSON_CONCAT(jsons STRING...) STRING",
    examples=[("""JSON_CONCAT('{"a":1}', '{"b":2}')""", """'{"a":1,"b":2}'"""), ("JSON_CONCAT('[1]', '2')", "'[1,2]'")],
)
def json_concat(*texts: str) -> str | None:
    """Objects united, or arrays and other values as one array; null if any is not JSON. One value stays as it is."""
    values = [parse_json(text) for text in texts]
    if not values or any(value is MISSING for value in values):
        return None
    if len(values) == 1:
        return write_json(values[0])
    if all(isinstance(value, dict) for value in values):
        return write_json({key: item for value in values for key, item in value.items()})
    return write_json([item for value in values for item in (value if isinstance(value, list) else [value])])


@JSON_FUNCTIONS.scalar(
    "JSON_ITEMS(json STRING) ARRAY<STRING>", examples=[("""JSON_ITEMS('[{"a": 1}, 2]')""", """ARRAY['{"a":1}', '2']""")]
)
def json_items(text: str) -> list[str] | None:
    """The elements of a JSON array, each as JSON."""
    array = parse_json(text)
    return [write_json(item, decimal=str) for item in array] if isinstance(array, list) else None


@JSON_FUNCTIONS.scalar("JSON_KEYS(json STRING) ARRAY<STRING>", examples=[("""JSON_KEYS('{"a": 1}')""", "ARRAY['a']")])
def json_keys(text: str) -> list[str] | None:
    """The keys of a JSON object; null for all else."""
    value = parse_json(text)
    return list(value) if isinstance(value, dict) else None


@JSON_FUNCTIONS.scalar(
    "JSON_RECORDS(json STRING) MAP<STRING, STRING>",
    examples=[("""JSON_RECORDS('{"a": "x", "b": 1}')""", """MAP('a' := 'x', 'b' := '1')""")],
)
def json_records(text: str) -> dict[str, str] | None:
    """The members of a JSON object as a map to their JSON; null for all else."""
    value = parse_json(text)
    if not isinstance(value, dict):
        return None
    return {key: _shown(item) for key, item in value.items()}


@JSON_FUNCTIONS.typed(
    "TO_JSON_STRING(value ANY) STRING", nulls=True, examples=[("TO_JSON_STRING(ARRAY[1, NULL])", "'[1,null]'")]
)
def to_json_string(kinds: Sequence[SqlType]) -> Callable[[Any], str]:
    """A value of any type as JSON; fields and entries are in the order of their names."""
    prepare = _prepared(kinds[0])
    return lambda value: write_json(prepare(value), _plain)


def _prepared(kind: SqlType) -> Callable[[Any], Any]:
    """Timestamps are integers, so their type must say that they are written as text."""
    inner: Callable[[Any], Any]
    match kind:
        case ArrayType(element):
            item = _prepared(element)
            inner = lambda values: [item(value) for value in values]  # noqa: E731
        case MapType(_, value_kind):
            item = _prepared(value_kind)
            inner = lambda values: {key: item(values[key]) for key in sorted(values)}  # noqa: E731
        case StructType(fields):
            steps = sorted(((field.name, _prepared(field.type)) for field in fields), key=lambda pair: pair[0])
            inner = lambda row: {name: step(row.get(name)) for name, step in steps}  # noqa: E731
        case _ if kind == TIMESTAMP:
            inner = timestamp_text
        case _:
            return lambda value: value
    return lambda value: None if value is None else inner(value)


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, time):
        return time_text(value)
    if isinstance(value, date):
        return date_text(value)
    raise SqlValueError(f"{type(value).__name__} has no JSON")
