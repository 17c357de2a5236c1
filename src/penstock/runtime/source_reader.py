"""Decoding and stamping the records of one source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock.errors import ConfigError, ProcessingError, SchemaRegistryError, TopologyError
from penstock.runtime.context import partition_time_meta
from penstock.runtime.record import ExtractorRecord, Headers, RecordContext, TopicBatch, record_context
from penstock.runtime.rows import FEW, DecodedRecords
from penstock.serde.base import UNDECODABLE, as_exception
from penstock.serde.changes import ChangeSerde
from penstock.serde.column import Column
from penstock.serde.headers import RecordHeaders, ask_again, joined, schema_at_front

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.serde.base import Serde
    from penstock.serde.headers import TopicSerdes
    from penstock.topology.nodes import SourceNode

__all__ = ["SourceReader", "reader_for"]


class SourceReader:
    """Decodes the records of one source node."""

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
            except UNDECODABLE:
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
            except UNDECODABLE as error:
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
        source = record_context(piece.batch, row if piece.rows is None else int(piece.rows[row]))
        raise ProcessingError(
            f"{self.node.name}: {source.topic}-{source.partition} offset {source.offset} has the invalid timestamp "
            f"{source.timestamp}",
            hint="Give a timestamp_extractor that takes the time from elsewhere, or returns a negative one to drop it.",
            node=self.node.name,
            record=source,
        )


def _extractor_record(batch: TopicBatch, source: RecordContext, key: Any, value: Any) -> ExtractorRecord:
    return ExtractorRecord(batch.topic, source.partition, source.offset, source.timestamp, key, value, source.headers)


def _decoded_around(serde: Serde[Any], data: pa.Array, good: NDArray[np.bool_], column: Column) -> Column:
    """Decode with nulls at bad rows; the rest in the serde's column type where that works."""
    try:
        return serde.decode(
            pa.array([one if ok else None for one, ok in zip(data.to_pylist(), good, strict=True)], data.type)
        )
    except UNDECODABLE:
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
