"""What a source function yields, and the offsets that it goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.connect.api import OffsetReader
from penstock.connect.data import Header, Headers, Schema, SourceRecord

__all__ = ["Offsets", "Record"]

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Record:
    """A record that a source function yields.

    Attributes:
        topic: The topic.
        value: The value: text, bytes, numbers, lists, dicts, or a ``Struct`` with a schema.
        key: The key.
        partition: The part of the source that it comes from, such as ``{"url": "..."}``.
        offset: The position in that part to go on from after it. Records without one come again after a restart.
        timestamp: Milliseconds since 1970; by default the time of writing.
        headers: Names and values.
        value_schema: The schema of the value, if it has one.
        key_schema: The schema of the key, if it has one.

    Example:
        >>> Record("lines", "GET /", partition={"file": "a"}, offset={"line": 1}).to_source_record().source_offset
        {'line': 1}
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: Mapping[str, Any] | None = None
    offset: Mapping[str, Any] | None = None
    timestamp: int | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    value_schema: Schema | None = None
    key_schema: Schema | None = None

    def to_source_record(self) -> SourceRecord:
        """Return the record as the worker takes it."""
        return SourceRecord(
            topic=self.topic,
            key=self.key,
            key_schema=self.key_schema,
            value=self.value,
            value_schema=self.value_schema,
            timestamp=self.timestamp,
            headers=Headers(Header(name, value) for name, value in self.headers.items()),
            source_partition=self.partition,
            source_offset=self.offset,
        )


class Offsets:
    """The stored offsets of a source, by source partition."""

    def __init__(self, reader: OffsetReader) -> None:
        self._reader = reader

    def get(self, partition: Mapping[str, Any], default: D | None = None) -> dict[str, Any] | D | None:
        """Return the offset to go on from; the default if there is none."""
        offset = self._reader.offset(partition)
        return default if offset is None else offset
