"""Parsing of keys in URLs and commands."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from penstock.errors import StateError
from penstock.serde.base import Serde

__all__ = ["ENCODINGS", "Encoding", "parse"]

Encoding: TypeAlias = Literal["auto", "string", "long", "double", "json", "hex", "base64"]
ENCODINGS: tuple[Encoding, ...] = ("auto", "string", "long", "double", "json", "hex", "base64")
_WHOLE = ("long", "integer", "short", "text_long")


def parse(serde: Serde[Any], text: str, encoding: Encoding = "auto") -> Any:
    """Parse the key in a text.

    >>> from penstock.serde import Serdes
    >>> parse(Serdes.long(), "17"), parse(Serdes.string(), "17"), parse(Serdes.string(), "6869", "hex")
    (17, '17', 'hi')

    Args:
        serde: The store's key serde; with "auto" it decides how to read the text.
        text: The text of the user.
        encoding: "hex" and "base64" are the key's bytes; the others are values.

    Raises:
        StateError: The text is not such a value, or the serde does not accept it.
    """
    read: dict[str, Callable[[str], Any]] = {
        "auto": lambda key_text: _by_serde(serde, key_text),
        "string": str,
        "long": int,
        "double": float,
        "json": json.loads,
        "hex": lambda key_text: serde.deserialize(bytes.fromhex(key_text)),
        "base64": lambda key_text: serde.deserialize(base64.b64decode(key_text, validate=True)),
    }
    try:
        key = read[encoding](text)
        serde.serialize(key)
    except Exception as error:
        raise StateError(
            f"{text!r} is not a key for the serde {serde.name!r} ({encoding}): {_first_line(error)}",
            hint=f"Write it as that type, or choose another encoding: {', '.join(ENCODINGS)}.",
            code="BAD_KEY",
            status=400,
        ) from error
    return key


def _by_serde(serde: Serde[Any], text: str) -> Any:
    name = serde.name
    if name in {"string", "uuid"}:
        return serde.deserialize(text.encode())
    if name == "bytes":
        return text.encode()
    if name in _WHOLE:
        return int(text)
    if name in {"double", "float"}:
        return float(text)
    if name == "boolean":
        return {"true": True, "false": False}[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
