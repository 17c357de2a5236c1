"""JSON text as values and back, bounded in depth; the writing is Jackson's: compact, doubles as Java prints them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.json_depth import depth_of
from penstock.sql.types import SqlValueError
from penstock.sql.types.numbers import decimal_text, double_text

__all__ = ["MISSING", "at_path", "parse_json", "write_json"]

MAX_DEPTH = 500
DECODER = json.JSONDecoder()
STEP = re.compile(r"""\.([\w@:$-]+)|\[([0-9]+)\]|\["((?:[^"\\]|\\.)*)"\]|\['([^']*)'\]""")
MISSING: Any = object()


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


def at_path(value: Any, path: str) -> Any:
    """The value at a path such as ``$.a[0]["b c"]``; `MISSING` if there is none."""
    if not path.startswith("$"):
        raise SqlValueError(f"the JSON path {path!r} must begin with $")
    at = 1
    while at < len(path):
        step = STEP.match(path, at)
        if step is None:
            raise SqlValueError(f"the JSON path {path!r} is wrong from character {at + 1}")
        at = step.end()
        if step[2] is not None:
            index = int(step[2]) if len(step[2]) < 10 else -1
            if not isinstance(value, list) or not 0 <= index < len(value):
                return MISSING
            value = value[index]
        else:
            name = step[1] or step[4] or re.sub(r"\\(.)", r"\1", step[3] or "")
            if not isinstance(value, dict) or name not in value:
                return MISSING
            value = value[name]
    return value


def write_json(value: Any, plain: Callable[[Any], str] | None = None) -> str:
    """A value as compact JSON; ``plain`` writes what is no JSON value, such as dates."""
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
            return decimal_text(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            pairs = (f"{json.dumps(str(k), ensure_ascii=False)}:{write_json(v, plain)}" for k, v in value.items())
            return "{" + ",".join(pairs) + "}"
        case list():
            return "[" + ",".join(write_json(item, plain) for item in value) + "]"
    if plain is None:
        raise SqlValueError(f"{type(value).__name__} has no JSON")
    return json.dumps(plain(value), ensure_ascii=False)
