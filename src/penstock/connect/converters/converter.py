"""The interface of converters: bytes to schemas and values, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from penstock.connect.config import NO_MODEL, ConfigDef, Importance, Kind, Model, OneOf, Setting
from penstock.connect.data import Schema, SchemaAndValue

__all__ = ["CONVERTER_TYPE", "Converter", "Role"]

Role = Literal["key", "value", "header"]
CONVERTER_TYPE = Setting(
    name="converter.type",
    kind=Kind.STRING,
    rule=OneOf(("key", "value", "header")),
    importance=Importance.LOW,
    doc="How this converter will be used.",
)


class Converter:
    """A converter of keys, values or headers. Kafka's ``Converter`` and ``HeaderConverter`` in one.

    Attributes:
        java_class: Kafka's class name, under which configs name it.
        config: The definition of its settings.
        model: The software whose names its settings have.
    """

    java_class: ClassVar[str]
    config: ClassVar[ConfigDef] = ConfigDef([CONVERTER_TYPE])
    model: ClassVar[Model] = NO_MODEL

    def configure(self, settings: Mapping[str, Any], role: Role = "value") -> None:
        """Take the settings, without their prefix such as ``value.converter.``.

        Raises:
            SettingError: One is wrong.
        """
        self.parsed(settings, role)

    def parsed(self, settings: Mapping[str, Any], role: Role) -> dict[str, Any]:
        """Return the parsed settings."""
        return self.config.parse({**settings, CONVERTER_TYPE.name: role})

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the schema and value of bytes.

        Raises:
            DataError: The bytes are not what the converter reads.
        """
        raise NotImplementedError

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a value.

        Raises:
            DataError: The converter cannot write such a value.
        """
        raise NotImplementedError

    def all_to_connect(
        self,
        topic: str,  # noqa: ARG002 - for those that override it
        data: Sequence[bytes | None],  # noqa: ARG002
    ) -> tuple[Schema | None, list[Any]] | None:
        """Return the values of many bytes, if they have one schema; None: call `to_connect` for each.

        Raises:
            DataError: Some bytes are not what the converter reads.
        """
        return None

    def all_from_connect(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> list[bytes | None]:
        """Return the bytes of many values of one schema.

        Raises:
            DataError: The converter cannot write one of them.
        """
        write = self.from_connect
        return [write(topic, schema, value) for value in values]
