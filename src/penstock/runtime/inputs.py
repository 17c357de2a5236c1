"""The records of one batch: decoded, stamped, and merged into one order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import ConfigError, ProcessingError, SchemaRegistryError, SerializationError, TopologyError
from penstock.runtime.place import Place
from penstock.runtime.rows import Headers, Rows
from penstock.serde.binding import bound, has_schema, joined, schema_at_front
from penstock.serde.changes import ChangeSerde
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import RunningContext
    from penstock.serde.base import Serde
    from penstock.topology.nodes import SourceNode

__all__ = ["Piece", "RecordContext", "SourceReader", "TaskInput", "TopicBatch", "headers_of"]

_SMALL = 16  # up to so many records, decoding value by value costs less than setting up columns


@dataclass(frozen=True)
class TopicBatch:
    """Records of one partition, in offset order (RECORD_SCHEMA). Internal topics go by their logical names."""

    topic: str
    partition: int
    records: pa.RecordBatch


class RecordContext(NamedTuple):
    """The source record behind a row; Kafka's ``RecordContext``. Offset -1: there is none (punctuation)."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    raw_key: bytes | None = None
    raw_value: bytes | None = None


class ConsumerRecord(NamedTuple):
    """What a timestamp extractor gets."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


@dataclass(slots=True)
class Piece:
    """The decoded records of one TopicBatch; ``rows`` are their positions in it (None: all)."""

    source: str
    batch: TopicBatch
    rows: NDArray[np.int64] | None
    timestamps: NDArray[np.int64]
    keys: Column
    values: Column
    headers: list[Headers] | None
    olds: Column | None = None  # of a regrouped table's changes

    def __len__(self) -> int:
        return len(self.timestamps)


def headers_of(array: pa.Array) -> list[Headers] | None:
    """Each record's headers; None when no record has any."""
    if array.null_count == len(array):
        return None
    return [
        () if one is None else tuple((header["key"], header["value"]) for header in one) for one in array.to_pylist()
    ]


class SourceReader:
    """Decodes the records of one source node."""

    def __init__(
        self,
        node: SourceNode,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        context: RunningContext,
        *,
        by_column: bool,
    ) -> None:
        self.node = node
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._context = context
        self._by_column = by_column
        self._pattern = re.compile(node.pattern) if node.pattern else None
        self._has_schema = has_schema(key_serde) or has_schema(value_serde)
        self._by_topic: dict[str, tuple[Serde[Any], Serde[Any]]] = {}

    def reads(self, topic: str) -> bool:
        return topic in self.node.topics or (self._pattern is not None and self._pattern.fullmatch(topic) is not None)

    def read(self, batch: TopicBatch) -> Piece:
        """Decodes; records that do not decode, or have no valid time, are left out as the handlers say."""
        records = batch.records
        failures: dict[int, Exception] = {}
        key_data, value_data = records.column("key"), records.column("value")
        headers = headers_of(records.column("headers"))
        key_serde, value_serde = self._key_serde, self._value_serde
        if self._has_schema:
            key_serde, value_serde = self._bound(batch.topic)
            if headers is not None:
                if schema_at_front(key_serde) is not None:
                    key_data, headers = joined(key_data, headers, "key")
                if schema_at_front(value_serde) is not None:
                    value_data, headers = joined(value_data, headers, "value")
        keys = self._decode(key_serde, key_data, failures)
        values = self._decode(value_serde, value_data, failures)
        timestamps = records.column("timestamp").to_numpy(zero_copy_only=False)
        piece = Piece(self.node.name, batch, None, timestamps, keys, values, headers)
        if failures:
            for row, error in sorted(failures.items()):
                self._context.undecodable(self.node.name, record_context(batch, row), error)
            piece = _without(piece, sorted(failures))
        if isinstance(self._value_serde, ChangeSerde):
            changes = [(None, None) if change is None else change for change in piece.values.items()]
            piece.values = Column.of_items([new for new, _ in changes])
            piece.olds = Column.of_items([old for _, old in changes])
        return self._stamp(piece)

    def _bound(self, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        """The serdes for a topic; with schemas they differ, as subjects are named after topics."""
        found = self._by_topic.get(topic)
        if found is None:
            name = self._context.physical_name(topic)
            found = bound(self._key_serde, name, "key"), bound(self._value_serde, name, "value")
            self._by_topic[topic] = found
        return found

    def _decode(self, serde: Serde[Any], data: pa.Array, failures: dict[int, Exception]) -> Column:
        if self._by_column or len(data) > _SMALL:
            try:
                return serde.decode(data)
            except SerializationError:
                pass  # some row is bad: find it
        items: list[Any] = []
        for row, one in enumerate(data.to_pylist()):
            try:
                items.append(serde.deserialize(one))
            except (ConfigError, SchemaRegistryError):
                raise  # no fault of the record
            except Exception as error:  # noqa: BLE001 - a user's serde may raise anything
                items.append(None)
                failures.setdefault(row, error)
        if self._by_column and not failures:
            return Column.of_items(items)
        if self._by_column:
            # The good rows keep the column type that they have when no bad row is among them.
            good = np.ones(len(items), np.bool_)
            good[list(failures)] = False
            return _decoded_around(serde, data, good, items)
        return Column.of_items(items)

    def _stamp(self, piece: Piece) -> Piece:
        extractor = self.node.timestamp_extractor
        name = f"partition_time:{piece.batch.topic}:{piece.batch.partition}"
        if extractor is None:
            if len(piece) and int(piece.timestamps.min()) < 0:
                self._refuse_negative(piece)
            return piece
        fn: Callable[..., Any] = extractor.fn
        partition_time = self._context.get_meta(name, -1)
        stamps = np.empty(len(piece), np.int64)
        keys, values = piece.keys.items(), piece.values.items()
        for row in range(len(piece)):
            source = record_context(piece.batch, row if piece.rows is None else int(piece.rows[row]))
            record = ConsumerRecord(
                piece.batch.topic,
                source.partition,
                source.offset,
                source.timestamp,
                keys[row],
                values[row],
                source.headers,
            )
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

    def _refuse_negative(self, piece: Piece) -> None:
        row = int(np.flatnonzero(piece.timestamps < 0)[0])
        source = record_context(piece.batch, row if piece.rows is None else int(piece.rows[row]))
        raise ProcessingError(
            f"{self.node.name}: {source.topic}-{source.partition} offset {source.offset} has the invalid timestamp "
            f"{source.timestamp}",
            hint="Give a timestamp_extractor that takes the time from elsewhere, or returns a negative one to drop it.",
            node=self.node.name,
            record=source,
        )


def _decoded_around(serde: Serde[Any], data: pa.Array, good: NDArray[np.bool_], items: list[Any]) -> Column:
    """Nulls at bad rows; the rest in the serde's column type where that works."""
    try:
        return serde.decode(
            pa.array([one if ok else None for one, ok in zip(data.to_pylist(), good, strict=True)], data.type)
        )
    except SerializationError:
        return Column.of_items(items)


def _without(piece: Piece, rows: list[int]) -> Piece:
    mask = np.ones(len(piece), np.bool_)
    mask[rows] = False
    index = np.flatnonzero(mask)
    return Piece(
        piece.source,
        piece.batch,
        index if piece.rows is None else piece.rows[index],
        piece.timestamps[index],
        piece.keys.take(index),
        piece.values.take(index),
        None if piece.headers is None else [piece.headers[i] for i in index.tolist()],
    )


def record_context(batch: TopicBatch, row: int) -> RecordContext:
    """The record at a row of a batch."""
    records = batch.records
    headers = records.column("headers")[row].as_py()
    return RecordContext(
        batch.topic,
        batch.partition,
        records.column("offset")[row].as_py(),
        records.column("timestamp")[row].as_py(),
        tuple((h["key"], h["value"]) for h in headers) if headers else (),
        records.column("key")[row].as_py(),
        records.column("value")[row].as_py(),
    )


class TaskInput:
    """All pieces of a batch in processing order.

    In a partition that is offset order. Between partitions the one whose head has the smallest timestamp goes first
    (ties: topic, then partition): a record waits for all before it, so that is the order of the running maxima.
    """

    def __init__(self, pieces: Sequence[Piece], *, ordered: bool, names: Mapping[str, str] | None = None) -> None:
        self._pieces = pieces
        self._names = names or {}  # of internal topics, as the cluster knows them
        lengths = [len(p) for p in pieces]
        self.length = sum(lengths)
        if len(pieces) <= 1:
            self._order: NDArray[np.int64] | None = None
            self.timestamps = pieces[0].timestamps if pieces else np.empty(0, np.int64)
        else:
            stamps = np.concatenate([p.timestamps for p in pieces])
            self._order = None if ordered else self._merged()
            self.timestamps = stamps if self._order is None else stamps[self._order]
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._records: dict[int, RecordContext] = {}

    def _merged(self) -> NDArray[np.int64]:
        ranks = {at: rank for rank, at in enumerate(sorted({(p.batch.topic, p.batch.partition) for p in self._pieces}))}
        rank = np.concatenate(
            [np.full(len(p), ranks[p.batch.topic, p.batch.partition], np.int64) for p in self._pieces]
        )
        newest: dict[int, int] = {}
        maxima = []
        for piece in self._pieces:
            at = ranks[piece.batch.topic, piece.batch.partition]
            running = np.maximum.accumulate(np.concatenate([[newest.get(at, -1)], piece.timestamps]))[1:]
            if len(running):
                newest[at] = int(running[-1])
            maxima.append(running)
        return np.lexsort((rank, np.concatenate(maxima)))

    def rows(self) -> list[tuple[str, Rows]]:
        """(source node, its rows) for each source node that has any."""
        if self._order is None:
            positions = np.arange(self.length)
        else:
            positions = np.empty(self.length, np.int64)
            positions[self._order] = np.arange(self.length)
        by_source: dict[str, list[Rows]] = {}
        for number, piece in enumerate(self._pieces):
            if len(piece):
                place = Place.of_inputs(positions[self._starts[number] : self._starts[number + 1]])
                rows = Rows(place, piece.timestamps, piece.keys, piece.values, piece.headers, piece.olds)
                by_source.setdefault(piece.source, []).append(rows)
        return [(source, Rows.merge(parts)) for source, parts in by_source.items()]

    def sources(self, positions: NDArray[np.int64]) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
        """Topic (bytes; null where there is no record), partition and offset of the records at these positions."""
        known = positions < self.length
        at = np.where(known, positions, 0)
        if self._order is not None:
            at = self._order[at]
        number = np.searchsorted(self._starts, at, side="right") - 1
        partitions, offsets = np.full(len(at), -1, np.int64), np.full(len(at), -1, np.int64)
        for which, piece in enumerate(self._pieces):
            mine = np.flatnonzero(known & (number == which))
            rows = at[mine] - self._starts[which]
            partitions[mine] = piece.batch.partition
            offsets[mine] = piece.batch.records.column("offset").to_numpy(zero_copy_only=False)[
                rows if piece.rows is None else piece.rows[rows]
            ]
        names = [self._names.get(p.batch.topic, p.batch.topic).encode() for p in self._pieces]
        topics = pa.array(names, pa.large_binary())
        return topics.take(pa.array(number, pa.int64(), mask=~known)), partitions, offsets

    def record(self, position: int) -> RecordContext:
        """The source record of an input position."""
        if position >= self.length:
            return RecordContext(None, -1, -1, -1, ())
        found = self._records.get(position)
        if found is None:
            at = position if self._order is None else int(self._order[position])
            number = int(np.searchsorted(self._starts, at, side="right")) - 1
            piece, row = self._pieces[number], at - int(self._starts[number])
            found = record_context(piece.batch, row if piece.rows is None else int(piece.rows[row]))
            found = found._replace(topic=self._names.get(piece.batch.topic, piece.batch.topic))
            self._records[position] = found
        return found


def reader_for(readers: Sequence[SourceReader], topic: str) -> SourceReader:
    """The source that reads a topic: by name before by pattern."""
    for reader in readers:
        if topic in reader.node.topics:
            return reader
    for reader in readers:
        if reader.reads(topic):
            return reader
    known = sorted({t for r in readers for t in r.node.topics} | {r.node.pattern for r in readers if r.node.pattern})
    raise TopologyError(
        f"no source of this task reads topic {topic!r}",
        hint=f"Its sources read {', '.join(known) or 'nothing'}.",
        topic=topic,
    )
