"""Records of sources and sinks, their headers, and batches of them as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, Self, overload

from penstock.serde.data.schema import DataError, Schema
from penstock.serde.data.values import Struct, fits, java_text

__all__ = [
    "NO_VALUE",
    "ConnectRecord",
    "Header",
    "Headers",
    "SchemaAndValue",
    "SinkBatch",
    "SinkColumns",
    "SinkRecord",
    "SourceBatch",
    "SourceRecord",
]


@dataclass(frozen=True, slots=True)
class Header:
    """One header. A struct's own schema is the header's, if no other is given."""

    key: str
    value: Any = None
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if self.schema is None and isinstance(self.value, Struct):
            object.__setattr__(self, "schema", self.value.schema)

    def __str__(self) -> str:
        schema = "null" if self.schema is None else str(self.schema)
        return f"ConnectHeader(key={self.key}, value={java_text(self.value, self.schema)}, schema={schema})"


class Headers:
    """The headers of a record: never changed in place, each method makes new ones. Kafka's ``ConnectHeaders``.

    Example:
        >>> headers = Headers().add("a", 1).add("b", 2).add("a", 3)
        >>> headers.last("a").value, [header.value for header in headers.without(["a"])]
        (3, [2])
    """

    __slots__ = ("_headers",)

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        self._headers = tuple(headers)

    def add(self, key: str, value: Any = None, schema: Schema | None = None) -> Headers:
        """Return the headers with one more at the end.

        Raises:
            DataError: The value does not fit its schema.
        """
        if schema is not None:
            if value is None and not schema.optional:
                raise DataError(f"A null value requires an optional schema but was {schema}")
            if value is not None and not fits(schema, value):
                raise DataError(f"The value {java_text(value)} is not compatible with the schema {schema}")
        return Headers((*self._headers, Header(key, value, schema)))

    def without(self, keys: Iterable[str]) -> Headers:
        """Return the headers that have none of these names."""
        dropped = frozenset(keys)
        return Headers(header for header in self._headers if header.key not in dropped)

    def changed(self, change: Callable[[Header], Header | None]) -> Headers:
        """Return each header as a function makes it; None drops it."""
        headers = (change(header) for header in self._headers)
        return Headers(header for header in headers if header is not None)

    def last(self, key: str) -> Header | None:
        """Return the last header of a name."""
        return next((header for header in reversed(self._headers) if header.key == key), None)

    def all(self, key: str) -> list[Header]:
        """Return all headers of a name, in order."""
        return [header for header in self._headers if header.key == key]

    def __iter__(self) -> Iterator[Header]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self._headers == other._headers

    def __hash__(self) -> int:
        return hash(tuple(header.key for header in self._headers))

    def __repr__(self) -> str:
        shown = f"[{', '.join(map(str, self._headers))}]" if self._headers else ""
        return f"ConnectHeaders(headers={shown})"


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


NO_HEADERS = Headers()


@dataclass(frozen=True, slots=True, eq=False)
class SourceBatch(Sequence[SourceRecord]):
    """The records of a poll for one topic, as columns; as a sequence it makes its records.

    A task that returns it in place of a list is several times as fast where no transformation asks for records.

    Attributes:
        topic: The topic.
        values: The values.
        value_schema: Their schema.
        source_partition: The part of the source that they come from.
        offset_at: Makes the position to go on from after the record with this index.
        keys: The keys; None: there are none.
        key_schema: Their schema.
        timestamps: Milliseconds since 1970; None: now.
        partition: The topic's partition; None: the key decides.
        more: Whether the next poll returns records at once: then a transaction may hold both.

    Example:
        >>> batch = SourceBatch("lines", ["a", "b"], None, {"file": "x"}, lambda row: {"line": row + 1})
        >>> batch[1].value, batch[-1].source_offset
        ('b', {'line': 2})
    """

    topic: str
    values: Sequence[Any]
    value_schema: Schema | None
    source_partition: Mapping[str, Any] | None
    offset_at: Callable[[int], Mapping[str, Any] | None]
    keys: Sequence[Any] | None = None
    key_schema: Schema | None = None
    timestamps: Sequence[int] | None = None
    partition: int | None = None
    more: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, row: int) -> SourceRecord: ...
    @overload
    def __getitem__(self, row: slice) -> list[SourceRecord]: ...
    def __getitem__(self, row: int | slice) -> SourceRecord | list[SourceRecord]:
        if isinstance(row, slice):
            return [self._record(each) for each in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        return self._record(row % len(self))

    def __iter__(self) -> Iterator[SourceRecord]:
        return map(self._record, range(len(self)))

    def _record(self, row: int) -> SourceRecord:
        return SourceRecord(
            topic=self.topic,
            partition=self.partition,
            key=None if self.keys is None else self.keys[row],
            key_schema=self.key_schema,
            value=self.values[row],
            value_schema=self.value_schema,
            timestamp=None if self.timestamps is None else self.timestamps[row],
            headers=NO_HEADERS,
            source_partition=self.source_partition,
            source_offset=self.offset_at(row),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SinkColumns:
    """Records of one partition, read from a topic.

    Attributes:
        topic: The topic.
        partition: The partition.
        offsets: Their offsets.
        timestamps: Milliseconds since 1970.
        keys: The keys.
        key_schema: Their schema.
        values: The values.
        value_schema: Their schema.
    """

    topic: str
    partition: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[Any]
    key_schema: Schema | None
    values: Sequence[Any]
    value_schema: Schema | None

    def records(self) -> Iterator[SinkRecord]:
        """Make the records, one after another."""
        return map(self.record_at, range(len(self.offsets)))

    def record_at(self, row: int) -> SinkRecord:
        """Make one record."""
        offset = self.offsets[row]
        return SinkRecord(
            topic=self.topic, partition=self.partition, offset=offset, timestamp=self.timestamps[row],
            timestamp_type="CreateTime", key=self.keys[row], key_schema=self.key_schema, value=self.values[row],
            value_schema=self.value_schema, headers=NO_HEADERS,
            original_topic=self.topic, original_partition=self.partition, original_offset=offset,
        )  # fmt: skip


class SinkBatch(Sequence[SinkRecord]):
    """The records of a put: as columns, and as a sequence of records, which are made when they are asked for.

    Args:
        parts: Columns of partitions, or records.

    Example:
        >>> columns = SinkColumns("lines", 0, [7, 8], [1, 2], [None, None], None, ["a", "b"], None)
        >>> batch = SinkBatch([columns])
        >>> len(batch), batch[1].offset, [list(values) for values, _ in batch.values()]
        (2, 8, [['a', 'b']])
    """

    __slots__ = ("_parts", "_records", "_size")

    def __init__(self, parts: Sequence[SinkColumns | SinkRecord] = ()) -> None:
        self._parts = parts
        self._records: list[SinkRecord] | None = None
        self._size = sum(len(part.offsets) if isinstance(part, SinkColumns) else 1 for part in parts)

    def values(self) -> Iterator[tuple[Sequence[Any], Schema | None]]:
        """Yield the values in order, in stretches of one schema."""
        for part in self._parts:
            yield (part.values if isinstance(part, SinkColumns) else (part.value,)), part.value_schema

    def parts(self) -> Sequence[SinkColumns | SinkRecord]:
        """Return what the batch is made of: columns of partitions, and records that a transformation asked for."""
        return self._parts

    def without(self, places: Sequence[tuple[str | None, int | None]]) -> SinkBatch:
        """Return the batch without what was read from these topics and partitions."""
        return SinkBatch([part for part in self._parts if _origin(part) not in places])

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, row: int) -> SinkRecord: ...
    @overload
    def __getitem__(self, row: slice) -> list[SinkRecord]: ...
    def __getitem__(self, row: int | slice) -> SinkRecord | list[SinkRecord]:
        return self._made()[row]

    def __iter__(self) -> Iterator[SinkRecord]:
        return iter(self._made())

    def _made(self) -> list[SinkRecord]:
        if self._records is None:
            records: list[SinkRecord] = []
            for part in self._parts:
                records.extend(part.records() if isinstance(part, SinkColumns) else (part,))
            self._records = records
        return self._records


def _origin(part: SinkColumns | SinkRecord) -> tuple[str | None, int | None]:
    if isinstance(part, SinkColumns):
        return part.topic, part.partition
    return part.original_topic, part.original_partition
