"""Formats: how the columns of a key or a value become bytes and come back."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.serde.base import BaseSerde
from penstock.sql.types import SqlType

if TYPE_CHECKING:
    from penstock.serde.schemas.base import SchemaSerde

__all__ = ["Columns", "FormatInfo", "FormatProperties", "RowSerde", "writing_settings"]

Columns = tuple[tuple[str, SqlType], ...]


@dataclass(frozen=True, slots=True)
class FormatInfo:
    """The abilities of a format.

    Attributes:
        name: its name in WITH.
        infers: whether a schema in a registry can say the columns.
        wraps: whether one column can be written as an object or record of one field.
        unwraps: whether one column can be written as it is.
        wraps_by_default: what holds for a single value column without WRAP_SINGLE_VALUE.
        properties: the format's own properties in WITH, without KEY_ or VALUE_.
    """

    name: str
    infers: bool = False
    wraps: bool = False
    unwraps: bool = True
    wraps_by_default: bool = False
    properties: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FormatProperties:
    """The settings of a format for a key or a value.

    Attributes:
        part: ``key`` or ``value``.
        wrapped: whether a single column is written as an object or record of one field; of several columns it has no
            meaning.
        delimiter: of DELIMITED: one character.
        schema_id: KEY_SCHEMA_ID or VALUE_SCHEMA_ID: the schema in the registry to write with.
        schema_full_name: KEY_SCHEMA_FULL_NAME or VALUE_SCHEMA_FULL_NAME: the name of the record or message.
        nullable: VALUE_PROTOBUF_NULLABLE_REPRESENTATION: ``""``, ``OPTIONAL`` or ``WRAPPER``.
        schema: the text of the schema behind ``schema_id``.
        registry: the registry's settings by Kafka's names, as `penstock.Serdes.avro` takes them; without a URL those of
            the application hold.
    """

    part: str = "value"
    wrapped: bool = True
    delimiter: str = ","
    schema_id: int | None = None
    schema_full_name: str | None = None
    nullable: str = ""
    schema: str | None = None
    registry: Mapping[str, Any] = field(default_factory=dict, compare=False)


class RowSerde(BaseSerde, ABC):
    """A serde of rows: tuples with one Python value for each column, as `penstock.sql.types` has them.

    ``serialize`` takes a tuple, or ``None`` for a tombstone; ``deserialize`` returns one. Bytes that are not a row of
    the columns raise `penstock.errors.SerializationError`.

    Attributes:
        format: the format.
        columns: names and types, in order.
        properties: the settings.
    """

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        self.format = info
        self.columns = columns
        self.properties = properties

    @property
    def name(self) -> str:
        shown = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        form = "" if self.properties.wrapped else "; unwrapped"
        return f"{self.format.name.lower()}({shown}{form})"

    @property
    def schema_serde(self) -> SchemaSerde | None:
        """The serde that talks to the registry when rows are written; None for formats without one."""
        return None

    @property
    def unwrapped(self) -> bool:
        """Whether a single column is written as it is."""
        return len(self.columns) == 1 and not self.properties.wrapped


def writing_settings(properties: FormatProperties) -> dict[str, Any]:
    """Return the registry's settings for a serde that writes: with the schema of the id that is given, if any."""
    settings = dict(properties.registry)
    return settings if properties.schema_id is None else settings | {"use.schema.id": properties.schema_id}
