"""Keys and values of messages, decoded by the serdes that a reader names or the writing application has noted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.log.formats import format_of
from penstock.serde import Serdes
from penstock.serde.windowed import Windowed

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["plain", "serdes_of", "text_of"]

_TEXT = "string"


def serdes_of(log: TopicLog, topic: str, key_format: str | None, value_format: str | None) -> tuple[Any, Any]:
    """Return the named serdes; by default those stored by the application that writes the topic, else text.

    Raises:
        ConfigError: There is no serde of a name.
    """
    noted = None if key_format and value_format else format_of(log, topic)
    registry = noted.registry if noted else ""

    def serde(name: str) -> Any:
        if registry and name in ("avro", "json_schema"):
            return (Serdes.avro if name == "avro" else Serdes.json_schema)(registry=registry)
        return Serdes.of(name)

    names = (key_format or (noted.key if noted else _TEXT), value_format or (noted.value if noted else _TEXT))
    return serde(names[0]), serde(names[1])


def plain(value: Any) -> Any:
    """Convert a value to JSON's types.

    >>> plain(b"ab"), plain({"a": 1})
    ('ab', {'a': 1})
    """
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, Windowed):
        return {"key": plain(value.key), "start": value.window.start, "end": value.window.end}
    try:
        json.dumps(value)
    except TypeError:
        return str(value)
    return value


def text_of(data: bytes) -> str:
    """Decode bytes as UTF-8, what is none as escapes."""
    return data.decode("utf-8", "backslashreplace")
