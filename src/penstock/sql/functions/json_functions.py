"""Functions of JSON in text."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any

from penstock.base.json_depth import depth_of
from penstock.sql.functions.registry import Family
from penstock.sql.types import TIMESTAMP, SqlType, SqlValueError, StructType
from penstock.sql.types.conversions import nested_conversion
from penstock.sql.types.numbers import decimal_text, double_text
from penstock.sql.types.texts import date_text, time_text, timestamp_text

__all__ = ["JSON_FUNCTIONS", "MISSING", "at_path", "parse_json", "write_json"]

JSON_FUNCTIONS = Family("json")
KINDS = ("STRING", "INTEGER", "BIGINT", "DOUBLE", "BOOLEAN")
MAX_DEPTH = 500
STEP = re.compile(r"""\.([\w@:$-]+)|\[(\w+)\]|\["((?:[^"\\]|\\.)*)"\]|\['([^']*)'\]""")
INDEX = re.compile("[+-]?[0-9]{1,10}")
MISSING: Any = object()


@JSON_FUNCTIONS.scalar(
    "EXTRACTJSONFIELD(json STRING, path STRING) STRING",
    examples=[("""EXTRACTJSONFIELD('{"a": [1, {"b": "x"}]}', '$.a[1].b')""", "'x'")],
)
def extract_json_field(text: str, path: str) -> str | None:
    """The value at a path in JSON: texts as they are, all else as JSON; null if it is not there."""
    element = at_path(parse_json(text), path)
    return None if element is MISSING else _shown(element)


def _shown(value: Any) -> str:
    """Return a value of a JSON text.

    Texts as they are, all else as JSON, with decimals as Java's BigDecimal shows them.
    """
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
    if isinstance(kind, StructType):
        kind = StructType(tuple(sorted(kind.fields, key=lambda field: field.name)))
    inner = nested_conversion(kind, _prepared, entries=lambda values: sorted(values.items()), convert_keys=False)
    if inner is None:
        if kind != TIMESTAMP:
            return lambda value: value
        inner = timestamp_text
    convert = inner
    return lambda value: None if value is None else convert(value)


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, time):
        return time_text(value)
    if isinstance(value, date):
        return date_text(value)
    raise SqlValueError(f"{type(value).__name__} has no JSON")


def parse_json(text: str) -> Any:
    """The first value of a JSON text; what follows it is ignored, as Jackson does. `MISSING` for an empty text."""
    stripped = text.lstrip(" \t\n\r")
    if not stripped:
        return MISSING
    if depth_of(stripped.encode("utf-8", "surrogatepass")) > MAX_DEPTH:
        raise SqlValueError(f"the JSON is nested more than {MAX_DEPTH} deep")
    try:
        value, end = DECODER.raw_decode(stripped)
    except ValueError as error:
        raise SqlValueError(f"not JSON: {error}") from error
    if not isinstance(value, dict | list | str) and stripped[end : end + 1].strip(" \t\n\r,]}"):
        raise SqlValueError(f"not JSON: {stripped[end]!r} follows a value")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _exact(text: str) -> Decimal:
    number = Decimal(text)
    return number or abs(number)  # Java's BigDecimal has no -0


DECODER = json.JSONDecoder(parse_float=_exact, parse_constant=_no_constant)


def at_path(value: Any, path: str) -> Any:
    """Return the value at a path such as ``$.a[0]["b c"]``; `MISSING` if there is none."""
    if not path.startswith("$"):
        raise SqlValueError(f"the JSON path {path!r} must begin with $")
    at = 1
    while at < len(path):
        step = STEP.match(path, at)
        if step is None:
            raise SqlValueError(f"the JSON path {path!r} is wrong from character {at + 1}")
        at = step.end()
        value = _below(value, step[1] or step[2] or step[4] or re.sub(r"\\(.)", r"\1", step[3] or ""))
    return value


def _below(value: Any, name: str) -> Any:
    """Return an object's member of a name, or an array's element at an index; `MISSING` if there is none."""
    if isinstance(value, list):
        index = int(name) if INDEX.fullmatch(name) else -1
        return value[index] if 0 <= index < len(value) else MISSING
    return value.get(name, MISSING) if isinstance(value, dict) else MISSING


def write_json(
    value: Any, plain: Callable[[Any], str] | None = None, decimal: Callable[[Decimal], str] = decimal_text
) -> str:
    """A value as compact JSON; ``plain`` writes what is not a JSON value, such as dates, ``decimal`` decimals."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            text = double_text(value)
            return text if text[-1].isdigit() else f'"{text}"'
        case int():
            return str(value)
        case Decimal():
            return decimal(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            pairs = (
                f"{json.dumps(str(k), ensure_ascii=False)}:{write_json(v, plain, decimal)}" for k, v in value.items()
            )
            return "{" + ",".join(pairs) + "}"
        case list():
            return "[" + ",".join(write_json(item, plain, decimal) for item in value) + "]"
    if plain is None:
        raise SqlValueError(f"{type(value).__name__} has no JSON")
    return json.dumps(plain(value), ensure_ascii=False)
