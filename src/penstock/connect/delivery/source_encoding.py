"""A source's records to bytes by the column, row by row where one fails; and records copied as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, overload

import pyarrow as pa

from penstock.connect.converters import Converter
from penstock.connect.data import SourceBatch, SourceRecord
from penstock.connect.delivery.pipeline import Pipeline
from penstock.connect.delivery.record_errors import NOT_SENT
from penstock.connect.plugins import Stage
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition
from penstock.log.stored_batches import StoredRecords

__all__ = ["Converted", "CopiedBatch", "Copy", "Outgoing", "SourceSteps"]


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """Consecutive records for a partition.

    Attributes:
        tp: The partition that they are written to.
        records: Record batches as another log has stored them, or columns (RECORD_SCHEMA).
        count: The number of records.
        source_partition: The part of the source that they come from.
        source_offset: The position to go on from after the last of them.
        columns: Reads them as columns, also if they are record batches.
        record: Makes a record of a row of the columns.
        written: Called with the offset of the first copy once they are written; -1: it is not known.
    """

    tp: TopicPartition
    records: StoredRecords | pa.RecordBatch
    count: int
    source_partition: Mapping[str, Any]
    source_offset: Mapping[str, Any]
    columns: Callable[[], pa.RecordBatch]
    record: Callable[[Mapping[str, Any]], SourceRecord]
    written: Callable[[int], None]

    @property
    def topic(self) -> str:
        """The topic that they are written to."""
        return self.tp.topic

    def records_made(self) -> Iterator[SourceRecord]:
        """Make the records, one after another."""
        return map(self.record, self.columns().to_pylist())


class CopiedBatch(Sequence[SourceRecord]):
    """The records of a poll that are copied; as a sequence it makes the records, for those who ask for them.

    Args:
        copies: The copies.
        more: Whether the next poll returns records at once: then a transaction may hold both.
    """

    __slots__ = ("_converted", "copies", "more")

    def __init__(self, copies: Sequence[Copy], *, more: bool = False) -> None:
        self.copies = copies
        self.more = more
        self._converted: list[SourceRecord] | None = None

    def __len__(self) -> int:
        return sum(copy.count for copy in self.copies)

    @overload
    def __getitem__(self, row: int) -> SourceRecord: ...
    @overload
    def __getitem__(self, row: slice) -> list[SourceRecord]: ...
    def __getitem__(self, row: int | slice) -> SourceRecord | list[SourceRecord]:
        return self._records()[row]

    def __iter__(self) -> Iterator[SourceRecord]:
        return iter(self._records())

    def _records(self) -> list[SourceRecord]:
        if self._converted is None:
            self._converted = [record for copy in self.copies for record in copy.records_made()]
        return self._converted


MAX_REQUEST_BYTES = 1_048_576
_BATCH_OVERHEAD, _RECORD_OVERHEAD = 61, 21
_MOST_OVERHEAD = _BATCH_OVERHEAD + _RECORD_OVERHEAD + 16
_Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Outgoing:
    """Records of one topic as bytes, in columns of the same length.

    Attributes:
        topic: The topic.
        values: The values.
        keys: The keys; None: there are none.
        timestamps: Milliseconds since 1970; None, of a record or of all: the time of writing.
        partitions: The partitions; None, of a record or of all: the key decides.
        headers: The headers; None: there are none.
    """

    topic: str
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    timestamps: Sequence[int | None] | None = None
    partitions: list[int | None] | None = None
    headers: list[_Headers] | None = None


@dataclass(slots=True)
class Converted:
    """The records of a poll after their conversion.

    Attributes:
        records: The records, as the task made them, without those behind a failure.
        outgoing: What is to be written.
        copies: What is to be written as another log has it.
        dropped: The rows of records of which nothing is written.
        topics: The topic of each record that is written, if there are several.
        skipped: How many of these have failed.
        failure: The failure that ends the task; what stands before it is complete.
    """

    records: Sequence[SourceRecord]
    outgoing: list[Outgoing] = field(default_factory=list)
    copies: Sequence[Copy] = ()
    dropped: list[int] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    skipped: int = 0
    failure: ConnectError | None = None

    @property
    def written(self) -> int:
        """The number of records to write."""
        return len(self.records) - len(self.dropped)


class SourceSteps:
    """The transformations and conversions of what a source's task returns.

    Args:
        pipeline: Transformations, converters and the handling of errors.
        most_bytes: The size of the largest record (``max.request.size``).
    """

    def __init__(self, pipeline: Pipeline, most_bytes: int = MAX_REQUEST_BYTES) -> None:
        self._pipeline = pipeline
        self._most_bytes = most_bytes

    def convert(self, records: Sequence[SourceRecord]) -> Converted:
        """Convert the records of a poll; a failure that ends the task is in the result."""
        if isinstance(records, CopiedBatch) and self._pipeline.copies:
            return Converted(records, copies=records.copies)
        if not isinstance(records, SourceBatch):
            return self._rows(records, records, self._pipeline.chain.stages)
        batch, left = self._pipeline.columns(records)
        columns = None if left else self._columns(batch)
        return self._rows(records, batch, left) if columns is None else Converted(records, [columns])

    def _columns(self, batch: SourceBatch) -> Outgoing | None:
        """Convert a batch at once; None if a record of it fails, or may be too large."""
        topic, converters = batch.topic, self._pipeline.converters
        if not topic:
            return None
        try:
            values = converters.value.all_from_connect(topic, batch.value_schema, batch.values)
            if batch.keys is not None:
                keys: list[bytes | None] | None = converters.key.all_from_connect(topic, batch.key_schema, batch.keys)
            else:
                key = converters.key.from_connect(topic, batch.key_schema, None)
                keys = None if key is None else [key] * len(values)
        except Exception:  # noqa: BLE001 - record by record it is known which one has failed
            return None
        if _longest(values) + _longest(keys) + _MOST_OVERHEAD > self._most_bytes:
            return None
        partitions: list[int | None] | None = None if batch.partition is None else [batch.partition] * len(values)
        return Outgoing(topic, values, keys, batch.timestamps, partitions)

    def _rows(
        self, records: Sequence[SourceRecord], current: Sequence[SourceRecord], stages: Sequence[Stage]
    ) -> Converted:
        """Transform and convert record by record.

        Args:
            records: The records as the task made them.
            current: The same after the first transformations.
            stages: The transformations that are left.
        """
        converted = Converted(records)
        transformed: list[SourceRecord | None] = []
        for row, record in enumerate(current):
            try:
                passed, now = self._pipeline.transformed(record, shown=partial(records.__getitem__, row), stages=stages)
            except ConnectError as error:
                converted.failure = error
                break
            converted.skipped += not passed
            transformed.append(now)
        if converted.failure is not None:
            converted.records = records[: len(transformed)]
        if self._alike(transformed, converted):
            return converted
        by_topic: dict[str, list[tuple[SourceRecord, bytes | None, bytes | None, _Headers]]] = {}
        for row, ready in enumerate(transformed):
            try:
                written = None if ready is None else self._converted(ready, records[row], converted)
            except ConnectError as error:
                converted.failure, converted.records = error, records[:row]
                break
            if written is None:
                converted.dropped.append(row)
            else:
                converted.topics.append(str(written[0].topic))
                by_topic.setdefault(converted.topics[-1], []).append(written)
        converted.outgoing = [_outgoing(topic, rows) for topic, rows in by_topic.items()]
        return converted

    def _alike(self, transformed: Sequence[SourceRecord | None], converted: Converted) -> bool:
        """Convert records of one topic and one schema at once; return whether they were, and none has failed."""
        kept = [record for record in transformed if record is not None]
        if not kept:
            converted.dropped = list(range(len(transformed)))
            return True
        first = kept[0]
        topic, schema, key_schema = first.topic, first.value_schema, first.key_schema
        if not topic or any(
            each.topic != topic or each.value_schema is not schema or each.key_schema is not key_schema or each.headers
            for each in kept
        ):
            return False
        converters = self._pipeline.converters
        try:
            values = converters.value.all_from_connect(topic, schema, [each.value for each in kept])
            keys = converters.key.all_from_connect(topic, key_schema, [each.key for each in kept])
        except Exception:  # noqa: BLE001 - record by record it is known which one has failed
            return False
        if _longest(values) + _longest(keys) + _MOST_OVERHEAD > self._most_bytes:
            return False
        converted.dropped = [row for row, record in enumerate(transformed) if record is None]
        converted.outgoing = [
            Outgoing(topic, values, keys, [each.timestamp for each in kept], [each.partition for each in kept])
        ]
        return True

    def _converted(
        self, record: SourceRecord, original: SourceRecord, converted: Converted
    ) -> tuple[SourceRecord, bytes | None, bytes | None, _Headers] | None:
        """Return a record as bytes; None if it has failed, and errors are tolerated."""
        topic, converters = record.topic, self._pipeline.converters
        if topic is None:
            raise ConnectError("A record of a source has no topic", hint="Set the topic of each record.")

        def headers() -> _Headers:
            return [(h.key, converters.header.from_connect(topic, h.schema, h.value)) for h in record.headers]

        def key() -> bytes | None:
            return converters.key.from_connect(topic, record.key_schema, record.key)

        def value() -> bytes | None:
            return converters.value.from_connect(topic, record.value_schema, record.value)

        parts: list[Any] = []
        steps: list[tuple[str, Converter, Callable[[], Any]]] = [
            ("HEADER_CONVERTER", converters.header, headers),
            ("KEY_CONVERTER", converters.key, key),
            ("VALUE_CONVERTER", converters.value, value),
        ]
        for stage, converter, operation in steps:
            step = (stage, type(converter).java_class)
            passed, result = self._pipeline.errors.run(step, operation, None, original)
            if not passed:
                converted.skipped += 1
                return None
            parts.append(result)
        if not self._fits(parts[1], parts[2], parts[0]):
            converted.skipped += 1
            return None
        return record, parts[1], parts[2], parts[0]

    def _fits(self, key: bytes | None, value: bytes | None, headers: _Headers) -> bool:
        size = _size(key, value, headers)
        if size <= self._most_bytes:
            return True
        error = ConnectError(
            f"The message is {size} bytes when serialized which is larger than {self._most_bytes}, which is the value "
            "of the max.request.size configuration."
        )
        if self._pipeline.errors.tolerance.all:
            return False
        raise ConnectError(NOT_SENT) from error


def _outgoing(topic: str, rows: list[tuple[SourceRecord, bytes | None, bytes | None, _Headers]]) -> Outgoing:
    return Outgoing(
        topic,
        values=[value for _, _, value, _ in rows],
        keys=[key for _, key, _, _ in rows],
        timestamps=[record.timestamp for record, _, _, _ in rows],
        partitions=[record.partition for record, _, _, _ in rows],
        headers=[headers for _, _, _, headers in rows] if any(headers for _, _, _, headers in rows) else None,
    )


def _longest(column: Sequence[bytes | None] | None) -> int:
    return max((len(each) for each in column if each is not None), default=0) if column is not None else 0


def _size(key: bytes | None, value: bytes | None, headers: _Headers) -> int:
    """Return the size of a record in a batch of its own, as Kafka's producer estimates it."""
    size = _BATCH_OVERHEAD + _RECORD_OVERHEAD + _field_size(key) + _field_size(value) + _varint_size(len(headers))
    return size + sum(_field_size(name.encode()) + _field_size(data) for name, data in headers)


def _field_size(data: bytes | None) -> int:
    return 1 if data is None else _varint_size(len(data)) + len(data)


def _varint_size(number: int) -> int:
    return max(1, ((number << 1).bit_length() + 6) // 7)
