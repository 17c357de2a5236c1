"""The records of a batch, and the rows of them that travel between operators, with their places in Kafka's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.base import RECORD_SCHEMA
from penstock.runtime.sensor import Volume
from penstock.serde.column import LARGE_BINARY, Column, parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "AFTER",
    "FEW",
    "FLUSH",
    "BytesColumn",
    "DecodedRecords",
    "ExtractorRecord",
    "NO_OLD",
    "Headers",
    "Place",
    "RawRecord",
    "RecordContext",
    "RecordInput",
    "Row",
    "Rows",
    "TaskInput",
    "TopicBatch",
    "bytes_of",
    "bytes_of_headers",
    "bytes_of_record",
    "headers_of",
    "record_context",
    "volumes_of_changes",
]

# Records

BytesColumn: TypeAlias = pa.Array | list[bytes | None]
"""Bytes of many rows, or of few."""

FEW = 64  # up to so many rows, going value by value costs less than setting up columns (measured with w3)

Headers = tuple[tuple[str, bytes | None], ...]


class RawRecord(NamedTuple):
    """A record as bytes; those of a test have partition 0."""

    topic: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = 0


class TopicBatch:
    """Records of one partition, in offset order. Internal topics go by their logical names.

    Args:
        topic: The topic.
        partition: The partition.
        records: The records as columns (RECORD_SCHEMA).

    Attributes:
        rows: The records one by one, if the batch was made of a few; None: they are columns alone.
        places: The places of the records among those of all batches that are processed together; None: by time, or one
            batch after the other.
    """

    __slots__ = ("_records", "partition", "places", "rows", "topic")

    def __init__(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        self.topic = topic
        self.partition = partition
        self.rows: Sequence[RawRecord] | None = None
        self.places: NDArray[np.int64] | None = None
        self._records = records

    @classmethod
    def of_rows(cls, rows: Sequence[RawRecord], places: NDArray[np.int64] | None = None) -> TopicBatch:
        """Return a batch of these records; few become columns only if those are asked for."""
        few = len(rows) <= FEW
        batch = cls(rows[0].topic, rows[0].partition, None if few else _columns_of(rows))
        batch.rows = rows if few else None
        batch.places = places
        return batch

    def __len__(self) -> int:
        return len(self._records) if self.rows is None else len(self.rows)

    @property
    def size_bytes(self) -> int:
        """The bytes of keys, values and headers, as Kafka counts them."""
        if self.rows is None:
            return _bytes_of_columns(self.records)
        return sum(map(bytes_of_record, self.rows))

    def only(self) -> RawRecord:
        """Return the record of a batch that has no other one."""
        if self.rows is not None:
            return self.rows[0]
        headers = headers_of(self._records.column("headers"))
        offset, timestamp, key, value = (
            self._records.column(name)[0].as_py() for name in ("offset", "timestamp", "key", "value")
        )
        return RawRecord(self.topic, offset, timestamp, key, value, headers[0] if headers else (), self.partition)

    @property
    def records(self) -> pa.RecordBatch:
        """The records as columns (RECORD_SCHEMA)."""
        if self._records is None:
            self._records = _columns_of(self.rows or ())
        return self._records

    def timestamps(self) -> NDArray[np.int64]:
        """Return the times of the records."""
        if self.rows is None:
            times: NDArray[np.int64] = self._records.column("timestamp").to_numpy(zero_copy_only=False)
            return times
        return np.array([row.timestamp for row in self.rows], np.int64)

    def headers(self) -> list[Headers] | None:
        """Return each record's headers; None when no record has any."""
        if self.rows is None:
            return headers_of(self._records.column("headers"))
        headers = [row.headers for row in self.rows]
        return headers if any(headers) else None


class RecordContext(NamedTuple):
    """The source record behind a row; Kafka's ``RecordContext``. Offset -1: there is none (punctuation)."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    raw_key: bytes | None = None
    raw_value: bytes | None = None


class ExtractorRecord(NamedTuple):
    """The record that a timestamp extractor gets."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


def _columns_of(rows: Sequence[RawRecord]) -> pa.RecordBatch:
    headers = [[{"key": name, "value": value} for name, value in row.headers] or None for row in rows]
    columns = [
        [row.offset for row in rows],
        [row.timestamp for row in rows],
        [row.key for row in rows],
        [row.value for row in rows],
        headers,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def headers_of(array: pa.Array) -> list[Headers] | None:
    """Return each record's headers; None when no record has any."""
    if array.null_count == len(array):
        return None
    return [
        () if one is None else tuple((header["key"], header["value"]) for header in one) for one in array.to_pylist()
    ]


def record_context(batch: TopicBatch, row: int) -> RecordContext:
    """Return the record at a row of a batch."""
    if batch.rows is not None:
        raw = batch.rows[row]
        return RecordContext(raw.topic, raw.partition, raw.offset, raw.timestamp, raw.headers, raw.key, raw.value)
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


# Rows and their places

AFTER = 1 << 40  # a part that comes after all that a record itself causes: punctuation
FLUSH = 1 << 41  # a part that comes after punctuation, too: changes that leave the caches at a commit


@dataclass(slots=True)
class Place:
    """The places of rows in the depth-first order of Kafka Streams; nobody changes one.

    A place is a tuple of parts compared from the left: the row's position in the task's merged input, then, for each
    operator that multiplied rows, the row's number among them, and for each fork, the number of the child. Rows of two
    batches of one task compare by their parts, so operators with several inputs can work in exactly Kafka's order.

    ``parts[0]`` is the input position; every part is an int64 array over the rows, or one int for all rows.
    """

    parts: tuple[NDArray[np.int64] | int, ...]
    length: int

    @classmethod
    def of_inputs(cls, positions: NDArray[np.int64]) -> Place:
        return cls((positions,), len(positions))

    @property
    def inputs(self) -> NDArray[np.int64]:
        """The input position of each row."""
        first = self.parts[0]
        return np.full(self.length, first, np.int64) if isinstance(first, int) else first

    def input(self, row: int) -> int:
        """Return the input position of one row."""
        first = self.parts[0]
        return first if isinstance(first, int) else int(first[row])

    def child(self, number: int) -> Place:
        """Return the same rows after a fork, on their way to the child of that number."""
        return Place((*self.parts, number), self.length)

    def extend(self, part: NDArray[np.int64] | int) -> Place:
        """Return the same rows with one more part."""
        return Place((*self.parts, part), self.length)

    def flushed(self, store: int) -> Place:
        """Return the same rows leaving a cache: after all else that their records cause, one store after the other."""
        return Place((self.parts[0], FLUSH + store, *self.parts[1:]), self.length)

    @property
    def flush(self) -> int | None:
        """The number of the store whose cache these rows have left; None: they come from their records."""
        part = self.parts[1] if len(self.parts) > 1 else -1
        return part - FLUSH if isinstance(part, int) and part >= FLUSH else None

    def take(self, index: NDArray[np.int64]) -> Place:
        """Return the rows at these positions."""
        return Place(tuple(p if isinstance(p, int) else p[index] for p in self.parts), len(index))

    def repeat(self, count: int) -> Place:
        """Return the only row so many times."""
        return Place(tuple([p if isinstance(p, int) else int(p[0]) for p in self.parts]), count)

    def row(self, number: int) -> Place:
        """Return one row."""
        return Place(tuple([p if isinstance(p, int) else p[number : number + 1] for p in self.parts]), 1)

    def position_of(self, other: Place) -> int | None:
        """Return the row, of rows in order, that another one has come from or is; None if it is none of them."""
        parts = [part if isinstance(part, int) else int(part[0]) for part in other.parts]
        rows = np.arange(*np.searchsorted(self.inputs, (parts[0], parts[0] + 1)))
        for part, value in zip(self.parts, parts, strict=False):
            rows = rows[np.full(len(rows), part == value) if isinstance(part, int) else part[rows] == value]
        return int(rows[0]) if len(rows) else None

    @staticmethod
    def concat(places: Sequence[Place]) -> Place:
        """Return all rows one after the other; shorter places are padded, so a row precedes those that it caused."""
        depth = max(len(p.parts) for p in places)
        parts = []
        for i in range(depth):
            column = [p.parts[i] if i < len(p.parts) else -1 for p in places]
            parts.append(
                np.concatenate(
                    [
                        np.full(p.length, part, np.int64) if isinstance(part, int) else part
                        for p, part in zip(places, column, strict=True)
                    ]
                )
            )
        return Place(tuple(parts), sum(p.length for p in places))

    def order(self) -> NDArray[np.int64]:
        """Return the permutation that sorts the rows into depth-first order (stable)."""
        arrays = [p for p in self.parts if not isinstance(p, int)]
        return np.lexsort(arrays[::-1]) if arrays else np.arange(self.length)


@dataclass(slots=True)
class Rows:
    """Columns of equal length in order of place; nobody changes them.

    ``olds`` is None for a stream; for a table the old values (all null when the node does not send old values), and
    ``values`` the new ones. ``headers`` is None when no row has any. ``timestamps`` are int64 milliseconds.
    The record that caused a row (topic, partition, offset) is found by ``place.inputs`` in the task's input.
    ``latest`` marks a table's changes that are the newest version of their key; None: all are, as always unless a
    versioned store takes out-of-order records (Kafka's ``Change.isLatest``).
    ``origins`` has the source records of rows that waited in a buffer, where they are not those of the place.
    """

    place: Place
    timestamps: NDArray[np.int64]
    keys: Column
    values: Column
    headers: list[Headers] | None = None
    olds: Column | None = None
    latest: NDArray[np.bool_] | None = None
    origins: list[RecordContext | None] | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return the rows at these positions."""
        return Rows(
            self.place.take(index),
            self.timestamps[index],
            self.keys.take(index),
            self.values.take(index),
            None if self.headers is None else [self.headers[i] for i in index.tolist()],
            None if self.olds is None else self.olds.take(index),
            None if self.latest is None else self.latest[index],
            None if self.origins is None else [self.origins[i] for i in index.tolist()],
        )

    def row(self, number: int) -> Rows:
        """Return one row."""
        if len(self.timestamps) == 1:
            return self
        end = number + 1
        return Rows(
            self.place.row(number),
            self.timestamps[number:end],
            self.keys.row(number),
            self.values.row(number),
            None if self.headers is None else self.headers[number:end],
            None if self.olds is None else self.olds.row(number),
            None if self.latest is None else self.latest[number:end],
            None if self.origins is None else self.origins[number:end],
        )

    def filter(self, mask: NDArray[np.bool_]) -> Rows:
        """Return the rows where the mask is true; self when all are."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def with_values(self, values: Column) -> Rows:
        return Rows(self.place, self.timestamps, self.keys, values, self.headers, self.olds, self.latest, self.origins)

    def with_keys(self, keys: Column) -> Rows:
        return Rows(self.place, self.timestamps, keys, self.values, self.headers, self.olds, self.latest, self.origins)

    def with_pairs(self, keys: Column, values: Column) -> Rows:
        return Rows(self.place, self.timestamps, keys, values, self.headers, self.olds, self.latest, self.origins)

    def with_place(self, place: Place) -> Rows:
        return Rows(place, self.timestamps, self.keys, self.values, self.headers, self.olds, self.latest, self.origins)

    def origin(self, row: int) -> RecordContext | None:
        """Return the source record of a row that waited in a buffer; None: it is found by the row's place."""
        return None if self.origins is None else self.origins[row]

    def without_changes(self) -> Rows:
        """Return none of the rows, as the changes of a table."""
        return replace(self.take(_NONE.timestamps), olds=_NONE.keys)

    @staticmethod
    def empty() -> Rows:
        """Return no rows."""
        return _NONE

    @staticmethod
    def merge(batches: Sequence[Rows]) -> Rows:
        """Return all rows of the batches in depth-first order."""
        batches = [b for b in batches if len(b)] or list(batches[:1])
        if len(batches) == 1:
            return batches[0]
        headers: list[Headers] | None = None
        if any(b.headers is not None for b in batches):
            headers = [h for b in batches for h in (b.headers if b.headers is not None else [()] * len(b))]
        olds = [b.olds for b in batches if b.olds is not None]
        latest: NDArray[np.bool_] | None = None
        if any(b.latest is not None for b in batches):
            latest = np.concatenate([np.ones(len(b), np.bool_) if b.latest is None else b.latest for b in batches])
        origins: list[RecordContext | None] | None = None
        if any(b.origins is not None for b in batches):
            origins = [o for b in batches for o in (b.origins if b.origins is not None else [None] * len(b))]
        merged = Rows(
            Place.concat([b.place for b in batches]),
            np.concatenate([b.timestamps for b in batches]),
            Column.concat([b.keys for b in batches]),
            Column.concat([b.values for b in batches]),
            headers,
            Column.concat(olds) if olds else None,
            latest,
            origins,
        )
        return merged.take(merged.place.order())


NO_OLD: Any = object()  # in place of the old value: the row is no change of a table


class Row:
    """A row by itself, as it goes from operator to operator where no batch is needed; nobody changes one.

    Attributes:
        timestamp: Its time.
        key: The key; a `Windowed` one below aggregations in windows.
        value: The value; of a table's change the new one.
        headers: The headers.
        old: The old value of a table's change; `NO_OLD` of a stream's row.
        origin: The source record of a row that waited in a buffer; None: it is the task's input.
        batch: The batch of this row alone from which it was taken, if it was.
    """

    __slots__ = ("batch", "headers", "key", "old", "origin", "timestamp", "value")

    def __init__(
        self,
        timestamp: int,
        key: Any,
        value: Any,
        headers: Headers = (),
        old: Any = NO_OLD,
        origin: RecordContext | None = None,
    ) -> None:
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.old = old
        self.origin = origin
        self.batch: Rows | None = None

    def with_pair(self, key: Any, value: Any) -> Row:
        """Return the row with another key and value."""
        return Row(self.timestamp, key, value, self.headers, self.old, self.origin)

    def with_change(self, value: Any, old: Any) -> Row:
        """Return the row as a change of a table."""
        return Row(self.timestamp, self.key, value, self.headers, old, self.origin)

    @property
    def old_value(self) -> Any:
        """The old value; None of a stream's row."""
        return None if self.old is NO_OLD else self.old

    def rows(self, step: int) -> Rows:
        """Return the batch of this row, or a new one, whose place is the step at which the row was passed on."""
        return self.batch or Rows(
            Place((0, step), 1),
            np.array([self.timestamp], np.int64),
            Column.of_items([self.key]),
            Column.of_items([self.value]),
            [self.headers] if self.headers else None,
            None if self.old is NO_OLD else Column.of_items([self.old]),
            None,
            None if self.origin is None else [self.origin],
        )

    @classmethod
    def only_of(cls, rows: Rows) -> Row:
        """Return the row of a batch that has no other one."""
        (row,) = cls.each_of(rows)
        row.batch = rows
        return row

    @classmethod
    def each_of(cls, rows: Rows) -> list[Row]:
        """Return the rows of a batch."""
        count = len(rows)
        return [
            cls(*one)
            for one in zip(
                rows.timestamps.tolist(),
                rows.keys.items(),
                rows.values.items(),
                rows.headers or [()] * count,
                [NO_OLD] * count if rows.olds is None else rows.olds.items(),
                rows.origins or [None] * count,
                strict=True,
            )
        ]


# The input of a task

_NONE = Rows(Place((np.empty(0, np.int64),), 0), np.empty(0, np.int64), Column.nulls(0), Column.nulls(0))


@dataclass(slots=True)
class DecodedRecords:
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


_NO_TIMES = np.empty(0, np.int64)


class TaskInput:
    """All pieces of a batch in processing order.

    Within a partition that is offset order. Between partitions the one whose head has the smallest timestamp goes first
    (ties: topic, then partition): a record waits for all before it, so that is the order of the running maxima.
    """

    def __init__(
        self, pieces: Sequence[DecodedRecords], *, ordered: bool, names: Mapping[str, str] | None = None
    ) -> None:
        self._pieces = pieces
        self._names = names or {}  # of internal topics, as the cluster knows them
        self.length = sum(map(len, pieces))
        if len(pieces) <= 1:
            self._order: NDArray[np.int64] | None = None
            self.timestamps = pieces[0].timestamps if pieces else _NO_TIMES
        else:
            stamps = np.concatenate([p.timestamps for p in pieces])
            self._order = self._placed() if ordered else self._merged()
            self.timestamps = stamps if self._order is None else stamps[self._order]
        self._records: dict[int, RecordContext] = {}

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where each piece begins among all, and their end."""
        return np.cumsum([0, *map(len, self._pieces)])

    def _placed(self) -> NDArray[np.int64] | None:
        """Return the order that the batches know, if they do; else they follow one another."""
        places: list[NDArray[np.int64]] = []
        for piece in self._pieces:
            if piece.batch.places is None:
                return None
            places.append(piece.batch.places if piece.rows is None else piece.batch.places[piece.rows])
        return np.argsort(np.concatenate(places))

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
        """Return (source node, its rows) for each source node that has any."""
        if len(self._pieces) == 1 and self.length:
            place = Place((0,), 1) if self.length == 1 else Place.of_inputs(np.arange(self.length))
            return [(self._pieces[0].source, _rows_of(self._pieces[0], place))]
        if self._order is None:
            positions = np.arange(self.length)
        else:
            positions = np.empty(self.length, np.int64)
            positions[self._order] = np.arange(self.length)
        by_source: dict[str, list[Rows]] = {}
        for number, piece in enumerate(self._pieces):
            if len(piece):
                rows = _rows_of(piece, Place.of_inputs(positions[self._starts[number] : self._starts[number + 1]]))
                by_source.setdefault(piece.source, []).append(rows)
        return [(source, Rows.merge(parts)) for source, parts in by_source.items()]

    def sources(self, positions: NDArray[np.int64]) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
        """Return topic (bytes; null without a record), partition and offset of the records at these positions."""
        if len(positions) <= FEW:
            records = [self.record(position) for position in positions.tolist()]
            names = [None if each.topic is None else each.topic.encode() for each in records]
            partitions = np.array([each.partition for each in records], np.int64)
            offsets = np.array([each.offset for each in records], np.int64)
            return pa.array(names, pa.large_binary()), partitions, offsets
        has_record = positions < self.length
        at = np.where(has_record, positions, 0)
        if self._order is not None:
            at = self._order[at]
        number = np.searchsorted(self._starts, at, side="right") - 1
        partitions, offsets = np.full(len(at), -1, np.int64), np.full(len(at), -1, np.int64)
        for which, piece in enumerate(self._pieces):
            mine = np.flatnonzero(has_record & (number == which))
            rows = at[mine] - self._starts[which]
            partitions[mine] = piece.batch.partition
            offsets[mine] = piece.batch.records.column("offset").to_numpy(zero_copy_only=False)[
                rows if piece.rows is None else piece.rows[rows]
            ]
        topics_of = [self._names.get(p.batch.topic, p.batch.topic).encode() for p in self._pieces]
        topics = pa.array(topics_of, pa.large_binary())
        return topics.take(pa.array(number, pa.int64(), mask=~has_record)), partitions, offsets

    def record(self, position: int) -> RecordContext:
        """Return the source record of an input position."""
        if position >= self.length:
            return RecordContext(None, -1, -1, -1, ())
        context = self._records.get(position)
        if context is None:
            piece, row = self._pieces[0], position
            if len(self._pieces) > 1:
                at = position if self._order is None else int(self._order[position])
                number = int(np.searchsorted(self._starts, at, side="right")) - 1
                piece, row = self._pieces[number], at - int(self._starts[number])
            context = record_context(piece.batch, row if piece.rows is None else int(piece.rows[row]))
            name = self._names.get(piece.batch.topic)
            if name is not None:
                context = context._replace(topic=name)
            self._records[position] = context
        return context


class RecordInput(TaskInput):
    """The input of one record that is processed by itself.

    Args:
        record: The record.
        name: The name of its topic in the log.
        is_read: Whether it could be decoded.
    """

    def __init__(self, record: RawRecord, name: str, *, is_read: bool) -> None:
        self._record = record
        self._name = name
        self.length = int(is_read)
        self._context: RecordContext | None = None

    @property
    def timestamps(self) -> NDArray[np.int64]:  # type: ignore[override]
        """The time of the record."""
        return np.array([self._record.timestamp] * self.length, np.int64)

    def record(self, position: int) -> RecordContext:
        """Return the source record of an input position."""
        if position >= self.length:
            return RecordContext(None, -1, -1, -1, ())
        if self._context is None:
            raw = self._record
            self._context = RecordContext(
                self._name, raw.partition, raw.offset, raw.timestamp, raw.headers, raw.key, raw.value
            )
        return self._context


def _rows_of(piece: DecodedRecords, place: Place) -> Rows:
    return Rows(place, piece.timestamps, piece.keys, piece.values, piece.headers, piece.olds)


# Sizes


def _bytes_of_columns(batch: pa.RecordBatch) -> int:
    keys, values, headers = (batch.column(name) for name in ("key", "value", "headers"))
    # Kafka's consumer says that a null has -1 bytes, and Kafka Streams adds that.
    size = bytes_of(keys) + bytes_of(values) - int(keys.null_count + values.null_count)
    return size + sum(map(bytes_of_headers, headers_of(headers) or ()))


def bytes_of_record(record: RawRecord) -> int:
    """Return the bytes of key, value and headers, as Kafka's consumer counts them."""
    key, value = record.key, record.value
    size = (-1 if key is None else len(key)) + (-1 if value is None else len(value))  # -1 as above
    return size + bytes_of_headers(record.headers) if record.headers else size


def bytes_of(column: BytesColumn) -> int:
    if isinstance(column, list):
        return sum([len(data) for data in column if data is not None])
    if column.null_count == len(column):
        return 0
    if column.type == LARGE_BINARY and not column.null_count:  # known by two offsets; nulls may stand over bytes
        ends = parts(column)[1]
        return int(ends[-1] - ends[0])
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)


def bytes_of_headers(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def volumes_of_changes(changes: Mapping[str, pa.RecordBatch]) -> dict[str, Volume]:
    """Return the sizes of the changed rows of stores, by store."""
    return {store: Volume(rows.num_rows, rows.nbytes) for store, rows in changes.items()}
