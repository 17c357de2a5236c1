"""Records of sources and sinks: key and value with their schemas, timestamp, headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, Self

from penstock.connect.data.headers import Headers
from penstock.serde.data.schema import Schema
from penstock.serde.data.values import java_text

__all__ = ["NO_VALUE", "ConnectRecord", "SchemaAndValue", "SinkRecord", "SourceRecord"]


@dataclass(frozen=True, slots=True)
class SchemaAndValue:
    """A value and its schema; without schema, None."""

    schema: Schema | None
    value: Any


NO_VALUE = SchemaAndValue(None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRecord:
    """The parts that records of sources and of sinks share. Records are never changed: ``with_`` makes new ones.

    Attributes:
        topic: The topic.
        partition: The partition; None: the key decides (only of a source's record).
        key: The key.
        key_schema: Its schema.
        value: The value; None is a tombstone.
        value_schema: Its schema.
        timestamp: Milliseconds since 1970.
        headers: The headers.
    """

    topic: str | None
    partition: int | None = None
    key: Any = None
    key_schema: Schema | None = None
    value: Any = None
    value_schema: Schema | None = None
    timestamp: int | None = None
    headers: Headers = field(default_factory=Headers)

    def with_(self, **changes: Any) -> Self:
        """Return the record with other parts.

        >>> SinkRecord(topic="lines", value=1).with_(value=2).value
        2
        """
        names, parts = _parts_of(type(self))  # type: ignore[arg-type]
        return type(self)(**{**dict(zip(names, parts(self), strict=True)), **changes})

    def _text(self) -> str:
        key_schema, value_schema = _shown(self.key_schema), _shown(self.value_schema)
        key, value = java_text(self.key, self.key_schema), java_text(self.value, self.value_schema)
        return (
            f"ConnectRecord{{topic='{_shown(self.topic)}', kafkaPartition={_shown(self.partition)}, key={key}, "
            f"keySchema={key_schema}, value={value}, valueSchema={value_schema}, "
            f"timestamp={_shown(self.timestamp)}, headers={self.headers}}}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecord(ConnectRecord):
    """A record that a sink reads from a topic.

    Attributes:
        offset: Its offset.
        timestamp_type: ``NoTimestampType``, ``CreateTime`` or ``LogAppendTime``.
        original_topic: The topic that it was read from, whatever transformations made of it; by default ``topic``.
        original_partition: The partition that it was read from.
        original_offset: The offset that it was read from.
    """

    offset: int = 0
    timestamp_type: str = "NoTimestampType"
    original_topic: str | None = None
    original_partition: int | None = None
    original_offset: int | None = None

    def __post_init__(self) -> None:
        if self.original_topic is None:
            object.__setattr__(self, "original_topic", self.topic)
        if self.original_partition is None:
            object.__setattr__(self, "original_partition", self.partition)
        if self.original_offset is None:
            object.__setattr__(self, "original_offset", self.offset)

    def __str__(self) -> str:
        return (
            f"SinkRecord{{kafkaOffset={self.offset}, timestampType={self.timestamp_type}, "
            f"originalTopic={_shown(self.original_topic)}, originalKafkaPartition={_shown(self.original_partition)}, "
            f"originalKafkaOffset={_shown(self.original_offset)}}} {self._text()}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord(ConnectRecord):
    """A record that a source made.

    Attributes:
        source_partition: The part of the source that it comes from, such as ``{"filename": "access.log"}``.
        source_offset: The position in it to go on from, such as ``{"position": 1024}``.
    """

    source_partition: Mapping[str, Any] | None = None
    source_offset: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        partition, offset = java_text(self.source_partition), java_text(self.source_offset)
        return f"SourceRecord{{sourcePartition={partition}, sourceOffset={offset}}} {self._text()}"


@cache
def _parts_of(kind: type[ConnectRecord]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(part.name for part in fields(kind))
    return names, attrgetter(*names)


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
