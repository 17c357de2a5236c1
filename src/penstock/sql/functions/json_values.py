"""JSON text as values and back, bounded in depth. Numbers with a point are decimals, and so keep their digits.

The writing is Jackson's: compact, doubles as Java prints them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.base.json_depth import depth_of
from penstock.sql.types import SqlValueError
from penstock.sql.types.numbers import decimal_text, double_text

__all__ = ["MISSING", "at_path", "parse_json", "write_json"]

MAX_DEPTH = 500
STEP = re.compile(r"""\.([\w@:$-]+)|\[(\w+)\]|\["((?:[^"\\]|\\.)*)"\]|\['([^']*)'\]""")
INDEX = re.compile("[+-]?[0-9]{1,10}")
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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _exact(text: str) -> Decimal:
    found = Decimal(text)
    return found or abs(found)  # Java's BigDecimal has no -0


DECODER = json.JSONDecoder(parse_float=_exact, parse_constant=_no_constant)


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
        value = _below(value, step[1] or step[2] or step[4] or re.sub(r"\\(.)", r"\1", step[3] or ""))
    return value


def _below(value: Any, name: str) -> Any:
    """The member of an object with a name, or the element of an array at an index; `MISSING` if there is none."""
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
