"""Keys and values of messages, decoded by the serdes that a reader names or the writing application has noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.log.formats import format_of
from penstock.serde import Serdes

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["serdes_of"]

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
