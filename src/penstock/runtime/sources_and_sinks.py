"""The edges of a task: source nodes decode the records of a batch, sink nodes encode the output.

Output is encoded once, partitioned by the column, in Kafka's order per topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.errors import (
    ConfigError,
    PenstockError,
    ProcessingError,
    SchemaRegistryError,
    SerializationError,
    TopologyError,
)
from penstock.log.base import HEADERS_TYPE
from penstock.log.partitioner import partitions_for
from penstock.runtime.context import partition_time_meta
from penstock.runtime.exception_handlers import is_decided
from penstock.runtime.rows import (
    FEW,
    NO_OLD,
    BytesColumn,
    DecodedRecords,
    ExtractorRecord,
    Headers,
    Place,
    RawRecord,
    RecordContext,
    Row,
    Rows,
    TopicBatch,
    bytes_of,
    bytes_of_headers,
    record_context,
)
from penstock.runtime.sensor import Volume
from penstock.serde.base import as_exception, undecodable
from penstock.serde.bound_serdes import (
    RecordHeaders,
    ask_again,
    bound,
    header_frame,
    joined,
    plain_headers,
    schema_at_front,
    split,
)
from penstock.serde.column import Column, bytes_column, cut, to_bytes_list
from penstock.serde.foreign_key_messages import ResponseColumn
from penstock.serde.table_changes import ChangeSerde
from penstock.serde.windowed import SessionWindowedSerde, TimeWindowedSerde, WindowedColumn
from penstock.topology.timestamp_extractors import wall_clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.dead_letters import DeadLetter, Origin
    from penstock.runtime.sensor import RecordWork
    from penstock.serde.base import Serde
    from penstock.serde.bound_serdes import TopicSerdes
    from penstock.topology.nodes import SinkNode, SourceNode
    from penstock.topology.operations.functions import Function

__all__ = ["OUTPUT_SCHEMA", "Collector", "Encoded", "SinkWriter", "SourceReader", "columns_of", "reader_for"]


# Sources


class SourceReader:
    """The reader of one source node's records."""

    def __init__(
        self,
        node: SourceNode,
        serdes: TopicSerdes,
        context: TaskContext,
        *,
        by_column: bool,
    ) -> None:
        self.node = node
        self._serdes = serdes
        self._context = context
        self._reads_changes = isinstance(serdes.value, ChangeSerde)
        self._by_column = by_column
        # Kafka never asks the extractor of a global table: entries have the times of their records.
        self._extractor = None if node.global_store else node.timestamp_extractor

    def read(self, batch: TopicBatch) -> DecodedRecords:
        """Decode a batch; records that do not decode, or have no valid time, are left out as the handlers say."""
        keys, values, headers, failures = self._columns(batch)
        piece = DecodedRecords(self.node.name, batch, None, batch.timestamps(), keys, values, headers)
        if failures:
            for row, error in sorted(failures.items()):
                self._context.undecodable(self.node.name, record_context(batch, row), error)
            piece = _without(piece, sorted(failures))
        if self._reads_changes:
            changes = [(None, None) if change is None else change for change in piece.values.items()]
            piece.values = Column.of_items([new for new, _ in changes])
            piece.olds = Column.of_items([old for _, old in changes])
        return self._stamp(piece)

    @property
    def reads_rows(self) -> bool:
        """Whether `read_row` reads a record as `read` does."""
        is_plain = not (self._by_column or self._serdes.has_schema)
        return is_plain and self._extractor is None and self._context.headers is None

    def read_row(self, record: RawRecord) -> Row | None:
        """Decode a record by itself; None: it does not decode, and the handler says to leave it out."""
        key_serde, value_serde = self._serdes.of(record.topic)
        failures: list[Exception] = []
        key = self._decode_row(key_serde, record.key, failures)
        value = self._decode_row(value_serde, record.value, failures)
        if failures:
            self._context.undecodable(self.node.name, _source_of(record), failures[0])
            return None
        timestamp = record.timestamp
        if timestamp < 0:
            raise self._invalid_time(_source_of(record))
        if self._context.keeps_partition_times:
            name = partition_time_meta(record.topic, record.partition)
            self._context.put_meta(name, max(self._context.get_meta(name, -1), timestamp))
        old = NO_OLD
        if self._reads_changes:
            value, old = (None, None) if value is None else value
        return Row(timestamp, key, value, record.headers, old)

    @staticmethod
    def _decode_row(serde: Serde[Any], data: bytes | None, failures: list[Exception]) -> Any:
        try:
            return serde.deserialize(data)
        except (ConfigError, SchemaRegistryError):
            raise  # no fault of the record
        except undecodable() as error:
            failures.append(as_exception(error))
            return None

    def times(self, batch: TopicBatch, partition_time: int | None) -> tuple[NDArray[np.int64], int]:
        """Return the times that `read` will find, without any effect; records that it will leave out have -1.

        Args:
            batch: The records.
            partition_time: The largest time so far; None: that of the records that have been read.

        Returns:
            The times, and the largest one after these records.
        """
        name = partition_time_meta(batch.topic, batch.partition)
        largest = self._context.get_meta(name, -1) if partition_time is None else partition_time
        extractor = self._extractor
        if extractor is None:
            return batch.timestamps(), largest
        key_column, value_column, _, failures = self._columns(batch)
        if extractor.fn is wall_clock:
            now = unix_ms()
            times = np.full(len(batch), now, np.int64)
            times[list(failures)] = -1
            return times, max(largest, now)
        keys, values = key_column.items(), value_column.items()
        times = np.full(len(batch), -1, np.int64)
        for row in range(len(times)):
            if row not in failures:
                record = _extractor_record(batch, record_context(batch, row), keys[row], values[row])
                try:
                    times[row] = int(extractor.fn(record, largest) if extractor.arity != 1 else extractor.fn(record))
                except Exception:  # noqa: BLE001, S112 - it raises again in `read`, which reports it
                    continue
                largest = max(largest, int(times[row]))
        return times, largest

    def _columns(self, batch: TopicBatch) -> tuple[Column, Column, list[Headers] | None, dict[int, Exception]]:
        """Decode a batch: keys, values and headers of all rows, and the rows that do not decode, with the errors."""
        failures: dict[int, Exception] = {}
        headers = batch.headers()
        key_serde, value_serde = self._serdes.of(batch.topic)
        if self._context.headers is not None:
            return self._columns_with_headers(batch, headers, (key_serde, value_serde))
        if batch.rows is not None and not self._by_column and not self._serdes.has_schema:
            keys = self._decode_rows(key_serde, [row.key for row in batch.rows], failures)
            return keys, self._decode_rows(value_serde, [row.value for row in batch.rows], failures), headers, failures
        key_data, value_data, headers = self._framed(batch, headers, (key_serde, value_serde))
        keys = self._decode(key_serde, key_data, failures)
        values = self._decode(value_serde, value_data, failures)
        return keys, values, headers, failures

    def _framed(
        self, batch: TopicBatch, headers: list[Headers] | None, serdes: tuple[Serde[Any], Serde[Any]]
    ) -> tuple[pa.Array, pa.Array, list[Headers] | None]:
        """Return the bytes of keys and values with the frames of their schemas, and the other headers."""
        key_data, value_data = batch.records.column("key"), batch.records.column("value")
        if self._serdes.has_schema:
            ask_again(serdes[0])
            ask_again(serdes[1])
            if headers is not None:
                if schema_at_front(serdes[0]) is not None:
                    key_data, headers = joined(key_data, headers, "key")
                if schema_at_front(serdes[1]) is not None:
                    value_data, headers = joined(value_data, headers, "value")
        return key_data, value_data, headers

    def _columns_with_headers(
        self, batch: TopicBatch, headers: list[Headers] | None, serdes: tuple[Serde[Any], Serde[Any]]
    ) -> tuple[Column, Column, list[Headers] | None, dict[int, Exception]]:
        """Decode record by record: serdes read the headers of each, and what they change in them stays changed."""
        current = self._context.headers
        assert current is not None, "a serde of the task looks at headers"  # noqa: S101
        key_data, value_data, headers = self._framed(batch, headers, serdes)
        of_records = [RecordHeaders(headers[row] if headers else ()) for row in range(len(batch))]
        failures: dict[int, Exception] = {}
        columns: list[Column] = []
        for serde, data in zip(serdes, (key_data.to_pylist(), value_data.to_pylist()), strict=True):
            items: list[Any] = []
            for row, own in enumerate(of_records):
                failed: dict[int, Exception] = {}
                with current.at(own):
                    items += self._decode_rows(serde, data[row : row + 1], failed).items()
                if failed:
                    failures.setdefault(row, failed[0])
            columns.append(Column.of_items(items))
        return columns[0], columns[1], cast("list[Headers]", of_records), failures

    def _decode(self, serde: Serde[Any], data: pa.Array, failures: dict[int, Exception]) -> Column:
        if self._by_column or len(data) > FEW:
            try:
                column = serde.decode(data)
                if len(column) == len(data):
                    return column
            except (ConfigError, SchemaRegistryError):
                raise  # no fault of a record
            except undecodable():
                pass  # some row is bad: find it
        column = self._decode_rows(serde, data.to_pylist(), failures)
        if self._by_column and failures:
            # The good rows keep the column type that they have when no bad row is among them.
            good = np.ones(len(column), np.bool_)
            good[list(failures)] = False
            return _decoded_around(serde, data, good, column)
        return column

    @staticmethod
    def _decode_rows(serde: Serde[Any], rows: list[bytes | None], failures: dict[int, Exception]) -> Column:
        items: list[Any] = []
        for row, data in enumerate(rows):
            try:
                items.append(serde.deserialize(data))
            except (ConfigError, SchemaRegistryError):
                raise  # no fault of the record
            except undecodable() as error:
                items.append(None)
                failures.setdefault(row, as_exception(error))
        return Column.of_items(items)

    def _stamp(self, piece: DecodedRecords) -> DecodedRecords:
        extractor = self._extractor
        if extractor is None:
            times = piece.timestamps
            if (times.item() if len(times) == 1 else times.min(initial=0)) < 0:
                self._refuse_negative(piece)
            if len(piece) and self._context.keeps_partition_times:
                name = partition_time_meta(piece.batch.topic, piece.batch.partition)
                self._context.put_meta(name, max(self._context.get_meta(name, -1), int(times.max())))
            return piece
        name = partition_time_meta(piece.batch.topic, piece.batch.partition)
        fn: Callable[..., Any] = extractor.fn
        partition_time = self._context.get_meta(name, -1)
        if fn is wall_clock:
            if len(piece):
                now = unix_ms()
                piece.timestamps = np.full(len(piece), now, np.int64)
                self._context.put_meta(name, max(partition_time, now))
            return piece
        stamps = np.empty(len(piece), np.int64)
        keys, values = piece.keys.items(), piece.values.items()
        for row in range(len(piece)):
            source = record_context(piece.batch, row if piece.rows is None else int(piece.rows[row]))
            record = _extractor_record(piece.batch, source, keys[row], values[row])
            try:
                stamp = int(fn(record, partition_time) if extractor.arity != 1 else fn(record))
            except Exception as error:
                raise ProcessingError(
                    f"{self.node.name}: the timestamp extractor {extractor.location} raised {type(error).__name__}: "
                    f"{error}, for {source.topic}-{source.partition} offset {source.offset}",
                    hint="Return a negative number to drop the record.",
                    node=self.node.name,
                    file=extractor.file,
                    line=extractor.line,
                    record=record,
                ) from error
            stamps[row] = stamp
            partition_time = max(partition_time, stamp)
        self._context.put_meta(name, partition_time)
        piece.timestamps = stamps
        negative = np.flatnonzero(stamps < 0)
        if len(negative):
            self._context.drop(self.node.name, len(negative), "the extracted timestamp is negative")
            piece = _without(piece, negative.tolist())
        return piece

    def _refuse_negative(self, piece: DecodedRecords) -> None:
        row = int(np.flatnonzero(piece.timestamps < 0)[0])
        raise self._invalid_time(record_context(piece.batch, row if piece.rows is None else int(piece.rows[row])))

    def _invalid_time(self, source: RecordContext) -> ProcessingError:
        return ProcessingError(
            f"{self.node.name}: {source.topic}-{source.partition} offset {source.offset} has the invalid timestamp "
            f"{source.timestamp}",
            hint="Give a timestamp_extractor that takes the time from elsewhere, or returns a negative one to drop it.",
            node=self.node.name,
            record=source,
        )


def _source_of(record: RawRecord) -> RecordContext:
    topic, offset, timestamp, key, value, headers, partition = record
    return RecordContext(topic, partition, offset, timestamp, headers, key, value)


def _extractor_record(batch: TopicBatch, source: RecordContext, key: Any, value: Any) -> ExtractorRecord:
    return ExtractorRecord(batch.topic, source.partition, source.offset, source.timestamp, key, value, source.headers)


def _decoded_around(serde: Serde[Any], data: pa.Array, good: NDArray[np.bool_], column: Column) -> Column:
    """Decode with nulls at bad rows; the rest in the serde's column type where that works."""
    try:
        return serde.decode(
            pa.array([one if ok else None for one, ok in zip(data.to_pylist(), good, strict=True)], data.type)
        )
    except undecodable():
        return column


def _without(piece: DecodedRecords, rows: list[int]) -> DecodedRecords:
    mask = np.ones(len(piece), np.bool_)
    mask[rows] = False
    index = np.flatnonzero(mask)
    return DecodedRecords(
        piece.source,
        piece.batch,
        index if piece.rows is None else piece.rows[index],
        piece.timestamps[index],
        piece.keys.take(index),
        piece.values.take(index),
        None if piece.headers is None else [piece.headers[i] for i in index.tolist()],
    )


def reader_for(readers: Sequence[SourceReader], topic: str) -> SourceReader:
    """Return the source that reads a topic: by name before by pattern."""
    for reader in readers:
        if topic in reader.node.topics:
            return reader
    for reader in readers:
        if reader.node.reads(topic):
            return reader
    names = sorted({t for r in readers for t in r.node.topics} | {r.node.pattern for r in readers if r.node.pattern})
    raise TopologyError(
        f"no source of this task reads topic {topic!r}",
        hint=f"Its sources read {', '.join(names) or 'nothing'}.",
        topic=topic,
    )


# Sinks

_BYTES = {bytes, type(None)}
_DEFAULT = -2  # in place of a partition: the one that Kafka's hash of the key names

OUTPUT_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),  # -1: the topic's number of partitions is not known
        ("timestamp", pa.int64()),
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("headers", HEADERS_TYPE),
    ]
)


@dataclass(slots=True)
class EncodedRows:
    """Encoded rows for one topic; the bytes of few rows are a list."""

    place: Place
    partitions: NDArray[np.int32]
    timestamps: NDArray[np.int64]
    keys: BytesColumn
    values: BytesColumn
    headers: list[Headers] | None

    def __len__(self) -> int:
        return len(self.timestamps)

    def raw_records(self, topic: str) -> list[RawRecord]:
        """Return the rows one by one, as records that have no offset yet."""
        keys = self.keys if isinstance(self.keys, list) else self.keys.to_pylist()
        values = self.values if isinstance(self.values, list) else self.values.to_pylist()
        if len(keys) == 1:
            of_one = () if self.headers is None else _plain_headers(self.headers[0])
            return [RawRecord(topic, -1, int(self.timestamps[0]), keys[0], values[0], of_one, int(self.partitions[0]))]
        headers = repeat((), len(self)) if self.headers is None else map(_plain_headers, self.headers)
        columns = (self.timestamps.tolist(), keys, values, headers, self.partitions.tolist())
        return [RawRecord(topic, -1, *row) for row in zip(*columns, strict=True)]


@dataclass(slots=True)
class EncodedRow:
    """An encoded row by itself, in place of `EncodedRows`; its place is the step at which it was passed on."""

    step: int
    record: RawRecord

    def __len__(self) -> int:
        return 1

    @property
    def place(self) -> Place:
        return Place((0, self.step), 1)

    @property
    def partitions(self) -> NDArray[np.int32]:
        return np.array([self.record.partition], np.int32)

    @property
    def timestamps(self) -> NDArray[np.int64]:
        return np.array([self.record.timestamp], np.int64)

    @property
    def keys(self) -> BytesColumn:
        return [self.record.key]

    @property
    def values(self) -> BytesColumn:
        return [self.record.value]

    @property
    def headers(self) -> list[Headers] | None:
        return [self.record.headers] if self.record.headers else None

    def raw_records(self, topic: str) -> list[RawRecord]:  # noqa: ARG002 - the record knows it
        """Return the row as a record that has no offset yet."""
        return [self.record]


Encoded: TypeAlias = EncodedRows | EncodedRow


class Collector:
    """The output of all sinks of a task in this batch, by topic.

    Args:
        partitions: Topic -> number of partitions, for the topics that are written.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions
        self._parts: dict[str, list[Encoded]] = {}

    def partition_count(self, topic: str) -> int:
        """Return a topic's number of partitions; 0 if it is not known."""
        return self._partitions.get(topic, 0)

    def add(self, topic: str, part: Encoded) -> None:
        """Add encoded rows."""
        self._parts.setdefault(topic, []).append(part)

    def add_letters(self, letters: list[tuple[Place, DeadLetter]], now_ms: int) -> None:
        """Add records for dead letter topics; those without a timestamp get the present time."""
        for place, letter in letters:
            key = pa.array([letter.key], pa.large_binary())
            target = _partitions(key, self.partition_count(letter.topic))
            value = pa.array([letter.value], pa.large_binary())
            stamp = np.array([now_ms if letter.timestamp is None else letter.timestamp], np.int64)
            self.add(letter.topic, EncodedRows(place, target, stamp, key, value, [letter.headers]))

    def written(self) -> dict[str, int]:
        """Return how many parts each topic has, for `go_back`."""
        return {topic: len(parts) for topic, parts in self._parts.items()}

    def go_back(self, written: Mapping[str, int]) -> None:
        """Forget what has been added since."""
        self._parts = {topic: self._parts[topic][:count] for topic, count in written.items()}

    def drain(self) -> dict[str, list[Encoded]]:
        """Return everything, and empty the collector."""
        parts, self._parts = self._parts, {}
        return parts


def columns_of(parts: Sequence[Encoded]) -> pa.RecordBatch:
    """Return the rows of one topic (OUTPUT_SCHEMA) in order of place."""
    if len(parts) == 1:
        part = parts[0]
        arrays = [
            pa.array(part.partitions),
            pa.array(part.timestamps),
            _bytes_array(part.keys),
            _bytes_array(part.values),
            _headers_array(part.headers, len(part)),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=OUTPUT_SCHEMA)
    order = Place.concat([part.place for part in parts]).order()
    headers: list[Headers] | None = None
    if any(part.headers is not None for part in parts):
        headers = [h for part in parts for h in (part.headers if part.headers is not None else [()] * len(part))]
        headers = [headers[at] for at in order.tolist()]
    index = pa.array(order)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.concatenate([part.partitions for part in parts])[order]),
            pa.array(np.concatenate([part.timestamps for part in parts])[order]),
            pa.concat_arrays([_bytes_array(part.keys) for part in parts]).take(index),
            pa.concat_arrays([_bytes_array(part.values) for part in parts]).take(index),
            _headers_array(headers, len(order)),
        ],
        schema=OUTPUT_SCHEMA,
    )


def _bytes_array(column: BytesColumn) -> pa.Array:
    return bytes_column(column) if isinstance(column, list) else column


def _plain_headers(headers: Headers) -> Headers:
    """Return a record's headers as a log keeps them: processors may give texts, or bytes of other types."""
    if all(type(one) is tuple and type(one[1]) in _BYTES for one in headers):
        return headers
    values = pa.array([value for _, value in headers], pa.large_binary()).to_pylist()
    return tuple((name, value) for (name, _), value in zip(headers, values, strict=True))


def _headers_array(headers: list[Headers] | None, length: int) -> pa.Array:
    if headers is None:
        return pa.nulls(length, HEADERS_TYPE)
    rows = [[{"key": name, "value": value} for name, value in one] or None for one in headers]
    return pa.array(rows, HEADERS_TYPE)


_UNKNOWN, _ONLY = np.full(1, -1, np.int32), np.zeros(1, np.int32)  # of one row; nobody changes them


def _partitions(keys: BytesColumn, count: int) -> NDArray[np.int32]:
    if count <= 1 == len(keys):
        return _UNKNOWN if count <= 0 else _ONLY
    if count <= 0:
        return np.full(len(keys), -1, np.int32)
    if count == 1:
        return np.zeros(len(keys), np.int32)
    return np.asarray(partitions_for(_bytes_array(keys), count), np.int32)


class SinkWriter:
    """The writer of one sink node's rows."""

    def __init__(
        self,
        node: SinkNode,
        serdes: TopicSerdes,
        collector: Collector,
        context: TaskContext,
    ) -> None:
        self._node = node
        self._serdes = serdes
        self._collector = collector
        self._context = context
        self._parent: str | None = None
        # Kafka's WindowedStreamPartitioner: a windowed key goes where its plain key goes.
        self._windowed = serdes.key if isinstance(serdes.key, TimeWindowedSerde | SessionWindowedSerde) else None

    def write(self, rows: Rows, parent: str | None = None) -> None:
        """Send rows to the topic; with a topic function, to the topics that it names.

        Args:
            rows: The rows.
            parent: The operator that sends them, if it is not there any more to take the error of a row: then the
                processing handler is asked here, as Kafka asks it for the operator above a sink that fails. None:
                the error is raised.
        """
        self._parent = parent
        if self._node.topic is not None:
            self._write(self._node.topic, rows)
            return
        topics = self._topics(rows)
        for topic in dict.fromkeys(topics):
            if topic is not None:
                self._write(topic, rows.filter(np.fromiter((t == topic for t in topics), np.bool_, len(topics))))

    @property
    def takes_rows(self) -> bool:
        """Whether `write_row` writes a row as `write` does."""
        node, serdes, context = self._node, self._serdes, self._context
        is_plain = node.topic is not None and node.partitioner is None and context.headers is None
        if serdes.has_schema or not is_plain:
            return False
        return self._windowed is None or self._collector.partition_count(node.topic or "") <= 1

    def write_row(self, row: Row, step: int, work: RecordWork, parent: str | None) -> None:
        """Send a row by itself, with the step at which it was passed on; see `write` for the parent."""
        topic, context = self._node.topic or "", self._context
        key_serde, value_serde = self._serdes.of(topic)
        failures: list[tuple[Origin, Exception]] = []
        key = _encode_row(key_serde, row.key, "key", failures)
        item = (row.value, row.old_value) if isinstance(value_serde, ChangeSerde) else row.value
        value = _encode_row(value_serde, item, "value", failures)
        if failures:
            self._parent = parent
            self._unencodable(topic, row.rows(step), 0, *failures[0])
            return
        name = context.physical_name(topic)
        size = (0 if key is None else len(key)) + (0 if value is None else len(value))
        headers = row.headers
        if headers:
            size += bytes_of_headers(headers)
            headers = _plain_headers(headers)
        work.sent.append((self._node.name, name, size))
        work.completed.append((self._node.name, row.timestamp))
        count = self._collector.partition_count(topic)
        partition = 0 if count == 1 else int(_partitions([key], count)[0])
        record = RawRecord(topic, -1, row.timestamp, key, value, headers, partition)
        self._collector.add(topic, EncodedRow(step, record))

    def _fail(self, rows: Rows, row: int, error: Exception, function: Function | None = None) -> None:
        """Raise the error of a row, or leave the row out if the handler of the operator above says so."""
        if is_decided(error) or self._context.by_record:
            raise error
        if self._context.fails_apart(rows, row):
            return
        if self._parent is None:
            source = self._node.parents[0]
            raise error if isinstance(error, PenstockError) else self._context.fatal(source, function, rows, row, error)
        self._context.failed(self._parent, function, rows, row, error)

    def _topics(self, rows: Rows) -> list[str | None]:
        """Return each row's topic; None where the function failed and the handler said to continue."""
        function = self._node.topic_fn
        assert function is not None, "a sink has a topic or a topic function"  # noqa: S101
        keys, values = rows.keys.items(), rows.values.items()
        topics: list[str | None] = []
        for row in range(len(rows)):
            arguments: tuple[Any, ...] = (keys[row], values[row])
            if function.arity == 1:
                arguments = (values[row],)
            elif function.arity == 3:
                context = self._context.record_context(rows, row)
                arguments = (*arguments, context._replace(raw_key=None, raw_value=None))  # Kafka has let go of them
            try:
                topics.append(str(function.fn(*arguments)))
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                self._fail(rows, row, error, function)
                topics.append(None)
        return topics

    def _write(self, topic: str, rows: Rows) -> None:
        chosen: NDArray[np.int64] | None = None
        if self._node.partitioner is not None:
            rows, chosen = self._chosen(self._node.partitioner, topic, rows)
        key_serde, value_serde = self._serdes.of(topic)
        if self._context.headers is not None:
            rows = replace(rows, headers=[_added_to(each) for each in rows.headers or [()] * len(rows)])
        of_keys: dict[int, Exception] = {}
        of_values: dict[int, Exception] = {}
        if self._serdes.uses_headers:
            keys, values = self._encoded_with_headers((key_serde, value_serde), rows, of_keys, of_values)
        else:
            keys = _encode(key_serde, rows.keys, of_keys)
            values = _encode_values(value_serde, rows, of_values)
        if of_keys or of_values:
            failures = {**of_values, **of_keys}
            for row, error in sorted(failures.items()):
                self._unencodable(topic, rows, row, "key" if row in of_keys else "value", error)
            mask = np.ones(len(rows), np.bool_)
            mask[list(failures)] = False
            rows = rows.filter(mask)
            keys, values = (_bytes_array(column).filter(pa.array(mask)) for column in (keys, values))
            chosen = None if chosen is None else chosen[mask]
        if not len(rows):
            return
        headers = rows.headers
        if headers is not None and self._context.headers is not None:
            headers = [plain_headers(each) for each in headers]  # a later sink may add to those of the record
        if self._serdes.has_schema:
            for part, serde in (("key", key_serde), ("value", value_serde)):
                frame = header_frame(serde)
                if frame is not None and part == "key":
                    keys, headers = split(_bytes_array(keys), frame, headers, part)
                elif frame is not None:
                    values, headers = split(_bytes_array(values), frame, headers, part)
        context = self._context
        name = context.physical_name(topic)
        size = Volume(len(keys), bytes_of(keys) + bytes_of(values) + sum(map(bytes_of_headers, headers or ())))
        context.sensor.on_produced(context.task_id, self._node.name, name, size)
        context.sensor.on_completed(context.task_id, self._node.name, rows.timestamps)
        count = self._collector.partition_count(topic)
        targets = self._targets(topic, rows, keys, count)
        if chosen is not None:
            targets = np.where(chosen == _DEFAULT, targets, chosen).astype(np.int32)
        self._collector.add(topic, EncodedRows(rows.place, targets, rows.timestamps, keys, values, headers))

    def _encoded_with_headers(
        self,
        serdes: tuple[Serde[Any], Serde[Any]],
        rows: Rows,
        of_keys: dict[int, Exception],
        of_values: dict[int, Exception],
    ) -> tuple[BytesColumn, BytesColumn]:
        """Encode row by row: serdes get the headers of each, and add to them."""
        current = self._context.headers
        assert current is not None, "a serde of the task looks at headers"  # noqa: S101
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for number, headers in enumerate(rows.headers or ()):
            row = rows.row(number)
            of_key: dict[int, Exception] = {}
            of_value: dict[int, Exception] = {}
            with current.at(cast("RecordHeaders", headers)):
                keys += to_bytes_list(_bytes_array(_encode(serdes[0], row.keys, of_key)))
                values += to_bytes_list(_bytes_array(_encode_values(serdes[1], row, of_value)))
            if of_key:
                of_keys[number] = of_key[0]
            if of_value:
                of_values[number] = of_value[0]
        return keys, values

    def _unencodable(self, topic: str, rows: Rows, row: int, origin: Origin, error: Exception) -> None:
        """Ask the production handler; for a value of a wrong type nobody is asked, as in Kafka."""
        try:
            self._context.unencodable(self._node.name, topic, rows, row, origin, error)
        except SerializationError as raised:
            self._fail(rows, row, raised)

    def _targets(self, topic: str, rows: Rows, keys: BytesColumn, count: int) -> NDArray[np.int32]:
        if isinstance(rows.values, ResponseColumn):
            return _answered(rows.values.partitions, keys, count)
        if self._windowed is not None and count > 1:
            serde = bound(self._windowed.inner, self._context.physical_name(topic), "key")
            frame = header_frame(serde)
            current = self._context.headers
            with nullcontext() if current is None else current.at(RecordHeaders()):  # not the record's, as in Kafka
                encoded = _bytes_array(_encode(serde, WindowedColumn.of(rows.keys).keys, {}))
            return _partitions(encoded if frame is None else cut(encoded, len(frame), 0), count)
        return _partitions(keys, count)

    def _chosen(self, function: Function, topic: str, rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
        """Return the rows, each as often as the user's partitioner names partitions for it, and the partitions."""
        count = self._collector.partition_count(topic)
        headers = [plain_headers(each) for each in rows.headers or [()] * len(rows)]
        positions: list[int] = []
        targets: list[int] = []
        dropped: list[int] = []
        for row, (key, value) in enumerate(zip(rows.keys.items(), rows.values.items(), strict=True)):
            arguments = (topic, key, value, count) if function.arity == 4 else (topic, key, value, headers[row], count)
            try:
                answers = self._answers(function, topic, function.fn(*arguments), count)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                self._fail(rows, row, error, function)
                continue
            if not answers:
                dropped.append(row)
            positions += [row] * len(answers)
            targets += answers
        self._context.drop_rows(self._node.name, rows, np.array(dropped, np.intp), "the partitioner names no partition")
        if positions != list(range(len(rows))):
            rows = rows.take(np.array(positions, np.int64))
        return rows, np.array(targets, np.int64)

    def _answers(self, function: Function, topic: str, answer: Any, count: int) -> list[int]:
        """Return the partitions that a user's partitioner names; `_DEFAULT` for Kafka's choice."""
        if answer is None:
            return [_DEFAULT]
        answers = [answer] if isinstance(answer, int | np.integer) else list(dict.fromkeys(answer))
        wrong = [target for target in answers if count > 0 and not 0 <= target < count]
        if wrong:
            raise SerializationError(
                f"{self._node.name}: the partitioner {function.location} returned partition {wrong[0]} of {topic!r}",
                hint=f"The topic has partitions 0 to {count - 1}; return None for the default.",
                node=self._node.name,
                task=self._context.task_id,
                topic=topic,
            )
        return [int(target) for target in answers]


def _answered(chosen: NDArray[np.int32], keys: BytesColumn, count: int) -> NDArray[np.int32]:
    """Send a response to the partition from which its subscription came, where that is known."""
    if count <= 0:
        return np.full(len(keys), -1, np.int32)
    exists = (chosen >= 0) & (chosen < count)
    return chosen if exists.all() else np.where(exists, chosen, _partitions(keys, count)).astype(np.int32)


def _encode(serde: Serde[Any], column: Column, failures: dict[int, Exception]) -> BytesColumn:
    if len(column) > FEW:
        try:
            return _large(serde.encode(column))
        except (SerializationError, pa.ArrowException):
            pass  # some row is bad: find it
    data: list[bytes | None] = []
    for row, item in enumerate(column.items()):
        try:
            data.append(serde.serialize(item))
        except (ConfigError, SchemaRegistryError):
            raise  # no fault of the record
        except Exception as error:  # noqa: BLE001 - a user's serde may raise anything
            data.append(None)
            failures.setdefault(row, error)
    if _BYTES.issuperset(map(type, data)):
        return data
    return pa.array(data, pa.large_binary())


def _encode_row(serde: Serde[Any], item: Any, origin: Origin, failures: list[tuple[Origin, Exception]]) -> bytes | None:
    """Encode one key or value as `_encode` does."""
    try:
        data: Any = serde.serialize(item)
    except (ConfigError, SchemaRegistryError):
        raise  # no fault of the record
    except Exception as error:  # noqa: BLE001 - a user's serde may raise anything
        failures.append((origin, error))
        return None
    encoded: bytes | None = data if type(data) in _BYTES else pa.array([data], pa.large_binary())[0].as_py()
    return encoded


def _encode_values(serde: Serde[Any], rows: Rows, failures: dict[int, Exception]) -> BytesColumn:
    return (
        _encode_changes(serde, rows, failures)
        if isinstance(serde, ChangeSerde)
        else _encode(serde, rows.values, failures)
    )


def _added_to(headers: Headers | RecordHeaders) -> Any:
    """Return headers that serdes can add to."""
    return headers if isinstance(headers, RecordHeaders) else RecordHeaders(headers)


def _encode_changes(serde: ChangeSerde, rows: Rows, failures: dict[int, Exception]) -> BytesColumn:
    """Encode new and old values as one, for the repartition topic of a regrouped table."""
    olds = rows.olds if rows.olds is not None else Column.nulls(len(rows))
    if len(rows) > FEW:
        try:
            return _large(serde.encode_changes(rows.values, olds))
        except (SerializationError, pa.ArrowException):
            pass  # some row is bad: find it
    return _encode(serde, Column.of_items(list(zip(rows.values.items(), olds.items(), strict=True))), failures)


def _large(array: pa.Array) -> pa.Array:
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array if array.type == pa.large_binary() else array.cast(pa.large_binary())
