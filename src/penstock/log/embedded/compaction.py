"""Compaction: only the last record of each key is kept. Offsets do not change, so there are gaps.

Keys are read without the write lock; then each run of rows is rewritten in a short transaction of its own. Concurrent
appends are safe: newer records only make more of the old ones obsolete.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.embedded import catalog
from penstock.log.embedded.codec import COLUMNS, INSERT, StoredRow, concat, decode, encode
from penstock.log.embedded.database import Database
from penstock.log.settings import setting

__all__ = ["compact_partition", "is_dirty"]

_ROWS_A_STEP = 32
_SMALL_ROW = 1_000  # rows with fewer records on average are joined


def is_dirty(database: Database, topic: str, partition: int) -> bool:
    """Return whether enough bytes are new since the last compaction (``min.cleanable.dirty.ratio``)."""
    with database.reading() as connection:
        slot = catalog.slot(connection, topic, partition)
        total, dirty = connection.execute(
            "SELECT coalesce(sum(bytes), 0), coalesce(sum(CASE WHEN last_offset >= ? THEN bytes ELSE 0 END), 0) "
            "FROM batches WHERE partition_id = ?",
            (slot.cleaned_to, slot.id),
        ).fetchone()
    return bool(dirty) and dirty / total >= float(setting(slot.config, "min.cleanable.dirty.ratio"))


class _OvertakenError(Exception):
    """Rows changed after they were read and before they were rewritten."""


def compact_partition(database: Database, topic: str, partition: int, now_ms: int) -> None:
    """Compact one partition up to its present end; stop if another process cleans it at the same time."""
    with suppress(_OvertakenError):
        _compact(database, topic, partition, now_ms)


def _compact(database: Database, topic: str, partition: int, now_ms: int) -> None:
    with database.reading() as connection:
        slot = catalog.slot(connection, topic, partition)
    lag_ms = int(setting(slot.config, "min.compaction.lag.ms"))
    newest = now_ms - lag_ms if lag_ms else None
    last = _last_offsets(database, slot)
    tombstones_until = now_ms - int(setting(slot.config, "delete.retention.ms"))
    position = slot.start_offset
    cleaned = slot.cleaned_to
    while position < slot.next_offset:
        with database.reading() as connection:
            rows = _rows(connection, slot, position)
        if not rows:
            break
        if newest is not None and any(row.appended_ms > newest for row in rows):
            break  # min.compaction.lag.ms: the rest is too young
        position = cleaned = rows[-1].stored.last_offset + 1
        before = concat([decode(row.stored, topic, partition) for row in rows])
        appended_ms = max(row.appended_ms for row in rows)
        after = before.filter(_kept(before, last, tombstones_until, appended_ms))
        if after.num_rows == before.num_rows and (len(rows) == 1 or before.num_rows >= len(rows) * _SMALL_ROW):
            continue
        encoded = encode(after, sparse=True)
        with database.writing() as connection:
            ids = [(row.id,) for row in rows]
            gone = sum(connection.execute("DELETE FROM batches WHERE id = ?", each).rowcount for each in ids)
            if gone != len(ids):  # retention or another compaction has removed rows: do not restore them
                raise _OvertakenError
            connection.executemany(INSERT, [row.values(slot.id, 0, appended_ms) for row in encoded])
    with database.writing() as connection:
        connection.execute("UPDATE partitions SET cleaned_to = max(cleaned_to, ?) WHERE id = ?", (cleaned, slot.id))


class _Row(NamedTuple):
    id: int
    appended_ms: int
    stored: StoredRow


def _rows(connection: sqlite3.Connection, slot: catalog.Slot, position: int) -> list[_Row]:
    found = connection.execute(
        f"SELECT id, appended_ms, {COLUMNS} FROM batches "  # noqa: S608
        "WHERE partition_id = ? AND last_offset >= ? AND last_offset < ? ORDER BY last_offset LIMIT ?",
        (slot.id, position, slot.next_offset, _ROWS_A_STEP),
    )
    return [_Row(number, appended_ms, StoredRow(*stored)) for number, appended_ms, *stored in found]


def _last_offsets(database: Database, slot: catalog.Slot) -> pa.Array:
    """Return the offset of each key's last record, ascending."""
    keys: pa.Table | None = None
    position = slot.start_offset
    while position < slot.next_offset:
        with database.reading() as connection:
            rows = _rows(connection, slot, position)
        if not rows:
            break
        position = rows[-1].stored.last_offset + 1
        batches = [decode(row.stored, slot.topic, slot.partition) for row in rows]
        found = pa.Table.from_batches(batches).select(["key", "offset"])
        keys = found if keys is None else pa.concat_tables([keys, found])
        keys = keys.group_by("key").aggregate([("offset", "max")]).select(["key", "offset_max"])
        keys = keys.rename_columns(["key", "offset"])
    if keys is None:
        return pa.array([], pa.int64())
    return keys.column("offset").combine_chunks()


def _kept(records: pa.RecordBatch, last: pa.Array, tombstones_until: int, appended_ms: int) -> pa.Array:
    newest = pc.is_in(records.column("offset"), value_set=last)
    expired = pc.and_(
        pc.is_null(records.column("value")),
        pc.less(pc.max_element_wise(records.column("timestamp"), appended_ms), tombstones_until),
    )
    return pc.and_(newest, pc.invert(expired))
