"""Record batches of an embedded log: append, read, find by time. Functions over one open connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.errors import LogError, OffsetOutOfRangeError
from penstock.log.base import Fetched, OffsetAndTime
from penstock.log.catalog import Slot
from penstock.log.codec import MAX_ROW_RECORDS, EncodedRow, concat, decode
from penstock.log.time_range import first_from

__all__ = ["check_keys", "insert", "iterate", "offset_for_time", "read", "stretches"]

_COLUMNS = "base_offset, count, flags, raw_bytes, payload, last_offset"
_COALESCE_BELOW = 2_000
_ROWS_A_QUERY = 64


def check_keys(slot: Slot, records: pa.RecordBatch) -> None:
    """Refuses records without a key in a compacted topic, as Kafka does."""
    if "compact" in slot.config.get("cleanup.policy", "") and records.column("key").null_count:
        raise LogError(
            f"a record without a key for the compacted topic {slot.topic!r}",
            hint="give each record a key, or create the topic with cleanup.policy=delete",
            topic=slot.topic,
        )


def insert(connection: sqlite3.Connection, slot: Slot, base: int, rows: Sequence[EncodedRow], now_ms: int) -> int:
    """Stores rows from offset ``base`` on; gives the next offset."""
    if not rows:
        return base
    connection.executemany(
        "INSERT INTO batches (partition_id, base_offset, last_offset, count, min_ts, max_ts, appended_ms, flags, "
        "bytes, raw_bytes, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (slot.id, base + row.base, base + row.last, row.count, row.min_ts, row.max_ts, now_ms, row.flags,
             row.payload.size, row.raw_bytes, row.payload)
            for row in rows
        ],
    )  # fmt: skip
    following = base + rows[-1].last + 1
    connection.execute("UPDATE partitions SET next_offset = ? WHERE id = ?", (following, slot.id))
    return following


def read(connection: sqlite3.Connection, slot: Slot, offset: int, max_records: int) -> Fetched:
    """Up to ``max_records`` from ``offset`` on."""
    _check_range(slot, offset)
    found: list[pa.RecordBatch] = []
    left = max(max_records, 1)
    for batch in _rows(connection, slot.id, offset, slot.next_offset):
        part = batch.slice(0, left)
        found.append(part)
        left -= part.num_rows
        if not left:
            records = concat(found)
            return Fetched(records, records.column("offset")[-1].as_py() + 1)
    return Fetched(concat(found), slot.next_offset)


def iterate(connection: sqlite3.Connection, slot: Slot, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """All records with start <= offset < end; rows as stored, except that runs of small ones are joined."""
    if start >= end:
        return
    _check_range(slot, start)
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in _rows(connection, slot.id, start, end):
        if batch.num_rows >= _COALESCE_BELOW and not small:
            yield batch
            continue
        small.append(batch)
        size += batch.num_rows
        if size >= MAX_ROW_RECORDS:
            yield concat(small)
            small, size = [], 0
    if small:
        yield concat(small)


def offset_for_time(connection: sqlite3.Connection, slot: Slot, timestamp: int) -> OffsetAndTime | None:
    """The first record, in offset order, that is not older."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM batches WHERE partition_id = ? AND last_offset >= ? AND max_ts >= ? "  # noqa: S608
        "ORDER BY last_offset LIMIT 1",
        (slot.id, slot.start_offset, timestamp),
    ).fetchone()
    if row is None:
        return None
    batch = _cut(decode(*row[:5]), slot.start_offset, slot.next_offset)
    first = first_from(batch, timestamp)
    if first is None:  # the only such record of this row lies before the log's start
        later = Slot(slot.topic, slot.partition, slot.id, row[5] + 1, slot.next_offset, slot.cleaned_to, slot.config)
        return offset_for_time(connection, later, timestamp)
    return first


def stretches(
    connection: sqlite3.Connection, slot: Slot, start: int, end: int, most: int
) -> list[tuple[int, int, int]]:
    """Rows until they hold ``most`` records: (next offset, smallest, largest timestamp); from the index alone."""
    found: list[tuple[int, int, int]] = []
    position = start
    for base, last, earliest, latest in connection.execute(
        "SELECT base_offset, last_offset, min_ts, max_ts FROM batches WHERE partition_id = ? AND last_offset >= ? "
        "ORDER BY last_offset",
        (slot.id, start),
    ):
        if base >= end or position - start >= most:
            break
        position = min(last + 1, end)
        found.append((position, earliest, latest))
    return found


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


def _rows(connection: sqlite3.Connection, partition_id: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    position = start
    while position < end:
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM batches WHERE partition_id = ? AND last_offset >= ? "  # noqa: S608
            "ORDER BY last_offset LIMIT ?",
            (partition_id, position, _ROWS_A_QUERY),
        ).fetchall()
        for row in rows:
            if row[0] >= end:
                return
            batch = _cut(decode(*row[:5]), start, end)
            if batch.num_rows:
                yield batch
        if len(rows) < _ROWS_A_QUERY:
            return
        position = rows[-1][5] + 1


def _cut(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    offsets = batch.column("offset")
    if offsets[0].as_py() >= start and offsets[-1].as_py() < end:
        return batch
    numbers = offsets.to_numpy()
    first, last = int(numbers.searchsorted(start)), int(numbers.searchsorted(end))
    return batch.slice(first, last - first)
