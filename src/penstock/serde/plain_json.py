"""Any value as plain JSON: what serdes, stores and queries return, for commands, the console and HTTP."""

from __future__ import annotations

import binascii
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any

from penstock.serde.windowed import Windowed

__all__ = ["base64_of", "plain", "text_of"]

MOST_LEVELS = 200  # of values in each other; what is deeper is shown as three dots


def text_of(data: bytes) -> str:
    """Decode bytes as UTF-8, what is none as escapes."""
    return bytes(data).decode("utf-8", "backslashreplace")


def base64_of(data: bytes) -> dict[str, str]:
    """Return an object with the base64 of bytes, from which they can be made again."""
    return {"base64": binascii.b2a_base64(data, newline=False).decode()}


def plain(value: Any, of_bytes: Callable[[bytes], Any] = text_of) -> Any:
    r"""Convert a value to what JSON has: None, booleans, finite numbers, texts, lists, dicts with texts as keys.

    Decimals, UUIDs, dates, times and numbers that are not finite become texts, as does what has no other form.

    >>> from decimal import Decimal
    >>> from penstock.serde.windowed import Window
    >>> plain({"at": date(2024, 2, 29), "price": Decimal("1.50"), "raw": b"h\xffi", "off": float("nan")})
    {'at': '2024-02-29', 'price': '1.50', 'raw': 'h\\xffi', 'off': 'nan'}
    >>> plain(Windowed("a", Window(0, 5)))
    {'key': 'a', 'start': 0, 'end': 5}

    Args:
        value: The value.
        of_bytes: The form of bytes: `text_of` for readers, `base64_of` for programs that want them back.
    """
    return _plain(value, of_bytes, 0)


def _plain(value: Any, of_bytes: Callable[[bytes], Any], level: int) -> Any:
    if value is None or value is True or value is False or type(value) in (int, str):
        return value
    if level > MOST_LEVELS:
        return "..."

    def inner(item: Any) -> Any:
        return _plain(item, of_bytes, level + 1)

    match value:
        case Enum():
            return inner(value.value)
        case bool():
            return bool(value)
        case int():
            return int(value)
        case str():
            return str(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case bytes() | bytearray() | memoryview():
            return of_bytes(bytes(value))
        case datetime() | date() | time():
            return value.isoformat()
        case Windowed():
            return {"key": inner(value.key), "start": value.window.start, "end": value.window.end}
        case Mapping():
            return {_name(key, of_bytes): inner(item) for key, item in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return {name: inner(item) for name, item in value._asdict().items()}
        case set() | frozenset():
            return [inner(item) for item in sorted(value, key=repr)]
    return _of_class(value, inner)


def _of_class(value: Any, inner: Callable[[Any], Any]) -> Any:
    """Return the form of an object by what it has: fields, a conversion of its own, items; else its text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: inner(getattr(value, field.name)) for field in dataclasses.fields(value)}
    for name in ("to_dict", "as_py", "to_pylist", "to_list", "tolist"):
        convert = getattr(type(value), name, None)
        if convert is not None:
            return inner(convert(value))
    if isinstance(value, Iterable) and not isinstance(value, type):
        return [inner(item) for item in value]
    return str(value)


def _name(key: Any, of_bytes: Callable[[bytes], Any]) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bytes | bytearray | memoryview):
        return text_of(bytes(key))
    if isinstance(key, bool) or key is None:
        return {None: "null", True: "true", False: "false"}[key]
    plain_key = _plain(key, of_bytes, 0)
    return plain_key if isinstance(plain_key, str) else str(plain_key)
