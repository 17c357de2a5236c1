"""Records of a partition as rows: their encoding, reads and writes in one open connection, and the fetcher of a thread.

Rows are Arrow IPC without its schema, compressed with lz4. A stored row omits columns that can be restored: offsets
without gaps, keys and headers that are all null.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from penstock.base.clock import unix_ms
from penstock.errors import LogError, OffsetOutOfRangeError, ProductionError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, Fetched, OffsetAndTime, Span, Stretch, TopicPartition
from penstock.log.embedded import catalog
from penstock.log.embedded.catalog import Slot
from penstock.log.embedded.database import Database
from penstock.log.time_range import first_from

__all__ = [
    "COLUMNS",
    "INSERT",
    "MAX_ROW_RECORDS",
    "EmbeddedFetcher",
    "LogRow",
    "StoredRow",
    "check_keys",
    "concat",
    "decode",
    "encode",
    "insert",
    "iterate",
    "normalise",
    "offset_for_time",
    "read",
    "read_bytes",
    "size_bytes",
    "stretches",
]

# Encoding

MAX_ROW_RECORDS = 10_000
MAX_ROW_BYTES = 4 * 1024 * 1024
_HAS_OFFSETS, _HAS_KEYS, _HAS_HEADERS, _LZ4 = 1, 2, 4, 8
_MIN_COMPRESSED_BYTES = 256
_CODEC = pa.Codec("lz4_raw")
_LZ4_RATIO = 256  # the most bytes that one byte of lz4 can encode
_NUMBERS = struct.Struct(">qqqqq")
_RECORD_TYPES: dict[str, pa.DataType] = {name: RECORD_SCHEMA.field(name).type for name in RECORD_SCHEMA.names}

# Not of a Python list: Arrow would import pandas at the first of them, which a process may never need.
EMPTY: pa.RecordBatch = pa.RecordBatch.from_arrays(
    [pa.nulls(0, each.type) for each in RECORD_SCHEMA], schema=RECORD_SCHEMA
)


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row to store. ``base`` and ``last`` count from the first record of the append, or are offsets if sparse."""

    base: int
    last: int
    count: int
    min_ts: int
    max_ts: int
    flags: int
    raw_bytes: int
    payload: Any

    def values(self, partition_id: int, base: int, appended_ms: int) -> tuple[Any, ...]:
        """Return the parameters of `INSERT`; ``base`` is added to the offsets (0 if they are sparse)."""
        first, last = base + self.base, base + self.last
        stored = StoredRow(first, last, self.count, self.flags, self.raw_bytes, self.payload, None)
        return (
            partition_id, first, last, self.count, self.min_ts, self.max_ts, appended_ms, self.flags,
            self.payload.size, self.raw_bytes, self.payload, checksum_of(stored),
        )  # fmt: skip


INSERT = (
    "INSERT INTO batches (partition_id, base_offset, last_offset, count, min_ts, max_ts, appended_ms, flags, bytes, "
    "raw_bytes, payload, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row read from the file: `COLUMNS`. The checksum is null in rows of earlier versions."""

    base_offset: int
    last_offset: int
    count: int
    flags: int
    raw_bytes: int
    payload: bytes
    checksum: int | None


COLUMNS = ", ".join(field.name for field in fields(StoredRow))


def _schema_of(flags: int) -> pa.Schema:
    names = ["timestamp", "value"]
    if flags & _HAS_OFFSETS:
        names.append("offset")
    if flags & _HAS_KEYS:
        names.append("key")
    if flags & _HAS_HEADERS:
        names.append("headers")
    return pa.schema([(name, _RECORD_TYPES[name]) for name in names])


_SCHEMAS = {flags: _schema_of(flags) for flags in range(8)}


def normalise(records: pa.RecordBatch, *, append_time_ms: int | None = None) -> pa.RecordBatch:
    """Return records as timestamp, key, value, headers (and offset if given), with the types of RECORD_SCHEMA.

    Args:
        records: The caller's records; absent columns become null, an absent timestamp becomes now.
        append_time_ms: Replaces the timestamps (``message.timestamp.type=LogAppendTime``).
    """
    count = records.num_rows
    names = records.schema.names
    if "value" not in names:
        raise LogError(f"records without a value column: {names}", hint=f"columns are {', '.join(RECORD_SCHEMA.names)}")
    columns: dict[str, pa.Array] = {}
    for name, kind in _RECORD_TYPES.items():
        if name in names:
            column = records.column(name)
            columns[name] = column if column.type == kind else column.cast(kind)
        elif name != "offset":
            columns[name] = None if name == "timestamp" else pa.nulls(count, kind)
    if append_time_ms is not None or columns["timestamp"] is None:
        now = append_time_ms if append_time_ms is not None else unix_ms()
        columns["timestamp"] = pa.repeat(pa.scalar(now, pa.int64()), count)
    if columns["timestamp"].null_count:
        raise LogError(
            "records without a timestamp", hint="give each record a timestamp in milliseconds since the epoch"
        )
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def encode(records: pa.RecordBatch, *, compression: str = "lz4", sparse: bool = False) -> list[LogRow]:
    """Encode normalised records as rows of at most ``MAX_ROW_RECORDS`` and about ``MAX_ROW_BYTES``."""
    return [_encode_one(piece, start, compression, sparse=sparse) for start, piece in _pieces(records)]


def decode(row: StoredRow, topic: str, partition: int) -> pa.RecordBatch:
    """Decode a stored row as RECORD_SCHEMA.

    Args:
        row: The stored row.
        topic: Its topic, for the error.
        partition: Its partition, for the error.

    Raises:
        LogError: The row is damaged.
    """
    try:
        return _decoded(row)
    except (ArithmeticError, LookupError, ValueError, MemoryError, OSError, pa.ArrowException) as error:
        raise LogError(
            f"{topic}-{partition}: the records from offset {row.base_offset} to {row.last_offset} are damaged in the "
            f"file of the log: {error}",
            hint="The disk or another program has changed the file: restore it from a copy.",
            topic=topic,
            partition=partition,
            offset=row.base_offset,
        ) from error


def checksum_of(row: StoredRow) -> int:
    """Return the CRC32C of a row's payload and of the numbers that are needed to decode it."""
    numbers = _NUMBERS.pack(row.base_offset, row.last_offset, row.count, row.flags, row.raw_bytes)
    return crc32c(numbers, crc32c(row.payload))


def _decoded(row: StoredRow) -> pa.RecordBatch:
    if row.checksum is not None and row.checksum != checksum_of(row):
        raise ValueError("its checksum is wrong")
    buffer = pa.py_buffer(row.payload)
    if row.flags & _LZ4:
        if not 0 <= row.raw_bytes <= _LZ4_RATIO * len(row.payload):
            raise ValueError(f"{len(row.payload):,} bytes of lz4 cannot be {row.raw_bytes:,} bytes")
        buffer = _CODEC.decompress(buffer, row.raw_bytes)
    stored = pa.ipc.read_record_batch(buffer, _SCHEMAS[row.flags & 7])
    if row.checksum is None:  # of an earlier version: nothing else says that it is whole
        stored.validate(full=True)
    if stored.num_rows != row.count:
        raise ValueError(f"{stored.num_rows} records instead of {row.count}")
    timestamp, value = stored.column(0), stored.column(1)
    position = 2
    if row.flags & _HAS_OFFSETS:
        offsets = stored.column(position)
        position += 1
    else:
        offsets = _arange(row.base_offset, row.count)
    if row.flags & _HAS_KEYS:
        key = stored.column(position)
        position += 1
    else:
        key = pa.nulls(row.count, pa.large_binary())
    headers = stored.column(position) if row.flags & _HAS_HEADERS else pa.nulls(row.count, HEADERS_TYPE)
    return pa.RecordBatch.from_arrays([offsets, timestamp, key, value, headers], schema=RECORD_SCHEMA)


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches."""
    if not batches:
        return EMPTY
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _arange(base_offset: int, count: int) -> pa.Array:
    return pa.array(np.arange(base_offset, base_offset + count, dtype=np.int64))


def _pieces(records: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    count = records.num_rows
    if not count:
        return
    step = max(1, min(MAX_ROW_RECORDS, count * MAX_ROW_BYTES // max(records.nbytes, 1)))
    for start in range(0, count, step):
        yield start, records.slice(start, step)


def _encode_one(records: pa.RecordBatch, start: int, compression: str, *, sparse: bool) -> LogRow:
    flags = 0
    names = ["timestamp", "value"]
    if sparse:
        flags |= _HAS_OFFSETS
        names.append("offset")
    if records.column("key").null_count < records.num_rows:
        flags |= _HAS_KEYS
        names.append("key")
    if records.column("headers").null_count < records.num_rows:
        flags |= _HAS_HEADERS
        names.append("headers")
    times = pc.min_max(records.column("timestamp"))
    columns = [records.column(name) for name in names]
    raw = pa.RecordBatch.from_arrays(columns, schema=_SCHEMAS[flags]).serialize()
    payload = raw
    if compression == "lz4" and raw.size >= _MIN_COMPRESSED_BYTES:
        packed = _CODEC.compress(raw)
        if packed.size < raw.size * 0.95:
            payload, flags = packed, flags | _LZ4
    base, last = start, start + records.num_rows - 1
    if sparse:
        base, last = records.column("offset")[0].as_py(), records.column("offset")[-1].as_py()
    return LogRow(
        base=base, last=last, count=records.num_rows, min_ts=times["min"].as_py(), max_ts=times["max"].as_py(),
        flags=flags, raw_bytes=raw.size, payload=payload,
    )  # fmt: skip


# Reads and writes

_COALESCE_BELOW = 2_000
_JOINED_BYTES = 4 << 20
_FIRST_ROWS = 8
_ROWS_A_QUERY = 64  # that are small: those of a query are in memory together
_QUERY_BYTES = 1 << 20


def check_keys(slot: Slot, records: pa.RecordBatch) -> None:
    """Raise ProductionError for records without a key in a compacted topic, as Kafka does; ``rows`` has their rows."""
    if "compact" in slot.config.get("cleanup.policy", "") and records.column("key").null_count:
        raise ProductionError(
            f"a record without a key for the compacted topic {slot.topic!r}",
            hint="give each record a key, or create the topic with cleanup.policy=delete",
            topic=slot.topic,
            partition=slot.partition,
            code="INVALID_RECORD",
            rows=np.flatnonzero(records.column("key").is_null()).tolist(),
        )


def insert(connection: sqlite3.Connection, slot: Slot, base: int, rows: Sequence[LogRow], now_ms: int) -> int:
    """Store rows from offset ``base`` on and return the next offset."""
    if not rows:
        return base
    connection.executemany(INSERT, [row.values(slot.id, base, now_ms) for row in rows])
    following = base + rows[-1].last + 1
    connection.execute("UPDATE partitions SET next_offset = ? WHERE id = ?", (following, slot.id))
    return following


def read(connection: sqlite3.Connection, slot: Slot, offset: int, max_records: int) -> Fetched:
    """Read up to ``max_records`` from ``offset`` on."""
    _check_range(slot, offset)
    batches: list[pa.RecordBatch] = []
    left = max(max_records, 1)
    for batch in _rows(connection, slot, offset, slot.next_offset):
        part = batch.slice(0, left)
        batches.append(part)
        left -= part.num_rows
        if not left:
            records = concat(batches)
            return Fetched(records, records.column("offset")[-1].as_py() + 1)
    return Fetched(concat(batches), slot.next_offset)


def read_bytes(connection: sqlite3.Connection, slot: Slot, offset: int, most_bytes: int) -> tuple[Fetched, int]:
    """Read at least one row from ``offset`` on, and more up to ``most_bytes`` before compression; return their size."""
    _check_range(slot, offset)
    end, size = offset, 0
    for last, raw in connection.execute(
        "SELECT last_offset, raw_bytes FROM batches WHERE partition_id = ? AND last_offset >= ? ORDER BY last_offset",
        (slot.id, offset),
    ):
        if size and size + raw > most_bytes:
            break
        end, size = last + 1, size + raw
    else:
        end = slot.next_offset
    return Fetched(concat(list(_rows(connection, slot, offset, end))), end), size


def iterate(connection: sqlite3.Connection, slot: Slot, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield all records with start <= offset < end, which must exist, as stored; runs of small rows are joined."""
    if start >= end:
        return
    _check_range(slot, start)
    _check_range(slot, end)
    small: list[pa.RecordBatch] = []
    size = size_bytes = 0
    for batch in _rows(connection, slot, start, end):
        if batch.num_rows >= _COALESCE_BELOW and not small:
            yield batch
            continue
        small.append(batch)
        size, size_bytes = size + batch.num_rows, size_bytes + batch.nbytes
        if size >= MAX_ROW_RECORDS or size_bytes >= _JOINED_BYTES:
            yield concat(small)
            small, size, size_bytes = [], 0, 0
    if small:
        yield concat(small)


def offset_for_time(connection: sqlite3.Connection, slot: Slot, timestamp: int) -> OffsetAndTime | None:
    """Find the first record, in offset order, that is not older than a timestamp."""
    row = connection.execute(
        f"SELECT {COLUMNS} FROM batches WHERE partition_id = ? AND last_offset >= ? AND max_ts >= ? "  # noqa: S608
        "ORDER BY last_offset LIMIT 1",
        (slot.id, slot.start_offset, timestamp),
    ).fetchone()
    if row is None:
        return None
    stored = StoredRow(*row)
    batch = _cut(decode(stored, slot.topic, slot.partition), slot.start_offset, slot.next_offset)
    first = first_from(batch, timestamp)
    if first is None:  # the only such record of this row is before the log's start
        later = Slot(
            slot.topic, slot.partition, slot.id, stored.last_offset + 1, slot.next_offset, slot.cleaned_to, slot.config
        )
        return offset_for_time(connection, later, timestamp)
    return first


def stretches(connection: sqlite3.Connection, slot: Slot, span: Span) -> list[Stretch]:
    """List rows until they hold ``most`` records, from the index alone."""
    row_stretches: list[Stretch] = []
    start, end, most = span
    position = start
    for base, last, earliest, latest in connection.execute(
        "SELECT base_offset, last_offset, min_ts, max_ts FROM batches WHERE partition_id = ? AND last_offset >= ? "
        "ORDER BY last_offset",
        (slot.id, start),
    ):
        if base >= end or position - start >= most:
            break
        position = min(last + 1, end)
        row_stretches.append(Stretch(position, earliest, latest))
    return row_stretches


def size_bytes(connection: sqlite3.Connection, slot: Slot, start: int, end: int) -> int:
    """Return the size of a range's records in bytes before compression, from the index alone."""
    size = 0.0
    for base, last, raw in connection.execute(
        "SELECT base_offset, last_offset, raw_bytes FROM batches WHERE partition_id = ? AND last_offset >= ? "
        "AND base_offset < ?",
        (slot.id, start, end),
    ):
        size += raw * (min(last + 1, end) - max(base, start)) / (last + 1 - base)
    return round(size)


def _check_range(slot: Slot, offset: int) -> None:
    if slot.start_offset <= offset <= slot.next_offset:
        return
    reason = "retention has removed it" if offset < slot.start_offset else "it is not written yet"
    raise OffsetOutOfRangeError(
        f"offset {offset} of {slot.topic}-{slot.partition} is out of range: {reason}",
        hint=f"offsets run from {slot.start_offset} to {slot.next_offset}",
        topic=slot.topic,
        partition=slot.partition,
        offset=offset,
        beginning=slot.start_offset,
        end=slot.next_offset,
    )


def _rows(connection: sqlite3.Connection, slot: Slot, start: int, end: int) -> Iterator[pa.RecordBatch]:
    position, limit = start, _FIRST_ROWS
    while position < end:
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM batches WHERE partition_id = ? AND last_offset >= ? "  # noqa: S608
            "ORDER BY last_offset LIMIT ?",
            (slot.id, position, limit),
        ).fetchall()
        for row in (StoredRow(*each) for each in rows):
            if row.base_offset >= end:
                return
            batch = _cut(decode(row, slot.topic, slot.partition), start, end)
            if batch.num_rows:
                yield batch
        if len(rows) < limit:
            return
        if sum(len(cell) for row in rows for cell in row if isinstance(cell, bytes)) < _QUERY_BYTES:
            limit = min(2 * limit, _ROWS_A_QUERY)
        position = StoredRow(*rows[-1]).last_offset + 1


def _cut(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    offsets = batch.column("offset")
    if offsets[0].as_py() >= start and offsets[-1].as_py() < end:
        return batch
    numbers = offsets.to_numpy()
    first, last = int(numbers.searchsorted(start)), int(numbers.searchsorted(end))
    return batch.slice(first, last - first)


# The fetcher of a thread

_PARTITION_BYTES = 4 << 20
_MOST_BYTES = 32 << 20


class EmbeddedFetcher:
    """The `Fetcher` of an embedded log: it reads when it is asked, in one snapshot of the file.

    A poll returns at most about 32 MiB, at least one stored row of each partition that is read, and begins with another
    partition each time, so that none starves.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._seen = -1  # the version of the log at which nothing was left to read
        self._turn = 0
        self._is_woken = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions from these offsets on, and no others."""
        self._positions = dict(positions)
        self._ends = {tp: end for tp, end in self._ends.items() if tp in positions}
        self._paused &= positions.keys()
        self._seen = -1

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Fetch these partitions no further until `resume`."""
        self._paused.update(self._positions.keys() & set(places))

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self._paused.difference_update(places)
        self._seen = -1

    def poll(self, timeout_s: float) -> dict[TopicPartition, Fetched]:
        """Return the records that are there; wait for some until the time-out.

        Raises:
            OffsetOutOfRangeError: Retention has removed records behind a position, or the topic was created anew.
            UnknownTopicError: A topic has been deleted.
            LogError: Stored records are damaged.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            version = self._database.version()
            fetched = self._read() if version != self._seen else {}
            left = deadline - time.monotonic()
            if fetched or left <= 0 or self._is_woken:
                self._is_woken = False
                return fetched
            self._seen = version
            self._database.wait_for_write(version, left, lambda: self._is_woken)

    def wake(self) -> None:
        """End the wait of `poll`, or of the next one; from any thread."""
        self._is_woken = True
        self._database.wake()

    def ends(self) -> Mapping[TopicPartition, int]:
        """Return the end of each partition as of the last poll that found something new."""
        return self._ends

    def close(self) -> None:
        """Forget all partitions."""
        self.assign({})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self) -> dict[TopicPartition, Fetched]:
        fetched: dict[TopicPartition, Fetched] = {}
        left = _MOST_BYTES
        with self._database.reading() as connection:
            slots = catalog.slots(connection, self._positions)
            self._ends = {tp: slot.next_offset for tp, slot in slots.items()}
            waiting = [
                tp for tp, position in self._positions.items() if position != self._ends[tp] and tp not in self._paused
            ]
            first = self._turn % len(waiting) if waiting else 0
            for tp in (*waiting[first:], *waiting[:first]):
                part, size = read_bytes(connection, slots[tp], self._positions[tp], min(left, _PARTITION_BYTES))
                fetched[tp] = part
                left -= size
                if left <= 0:
                    break
        for tp, part in fetched.items():
            self._positions[tp] = part.next_offset
        self._turn += len(fetched)
        return fetched
