"""The default converter of headers: texts whose types are guessed from what they look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef
from penstock.connect.converters.converter import Converter, Role
from penstock.connect.converters.header_parsing import parse_header
from penstock.connect.converters.header_text import header_text
from penstock.connect.data import NO_VALUE, Schema, SchemaAndValue

__all__ = ["SimpleHeaderConverter"]


class SimpleHeaderConverter(Converter):
    """Headers as text: written by ``header_text``, read by ``parse_header``.

    >>> SimpleHeaderConverter().to_connect("lines", b"3.5").value
    3.5
    """

    java_class: ClassVar[str] = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    config: ClassVar[ConfigDef] = ConfigDef()

    def configure(self, settings: Mapping[str, Any], role: Role = "header") -> None:
        """Take the settings: there are none."""

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - of the interface
        """Return the value that the text looks like."""
        return NO_VALUE if data is None else parse_header(data.decode("utf-8", "replace"))

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - of the interface
        """Return the text of a value.

        Raises:
            DataError: It has none.
        """
        return None if value is None else header_text(value, schema).encode("utf-8", "replace")
