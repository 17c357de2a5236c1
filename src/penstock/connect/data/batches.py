"""Batches of records as columns: single records are made only for those who ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from penstock.connect.data.headers import Headers
from penstock.connect.data.records import SinkRecord, SourceRecord
from penstock.serde.data.schema import Schema

__all__ = ["SinkBatch", "SinkColumns", "SourceBatch"]

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
