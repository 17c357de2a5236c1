"""Upkeep of an embedded log: retention, compaction, deletion of records, sizes."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.clock import unix_ms
from penstock.errors import LogError, PenstockError, UnknownTopicError
from penstock.log.base import TopicInfo, TopicPartition
from penstock.log.embedded import catalog
from penstock.log.embedded.database import Database
from penstock.log.embedded.records import COLUMNS, INSERT, StoredRow, concat, decode, encode
from penstock.log.topic_settings import setting

__all__ = ["CLEAN_EVERY_MS", "PartitionStats", "Upkeep", "compact_partition", "is_dirty"]

CLEAN_EVERY_MS = 60_000
_CLEANER_S = 5.0
_ROWS_A_STEP = 32
_SMALL_ROW = 1_000  # rows with fewer records on average are joined


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """The contents of a partition in numbers; ``bytes`` as stored, ``raw_bytes`` before compression."""

    beginning_offset: int
    end_offset: int
    records: int
    batches: int
    bytes: int
    raw_bytes: int
    min_timestamp: int | None
    max_timestamp: int | None


class Upkeep:
    """Retention, compaction and sizes of an embedded log."""

    _database: Database
    _next_clean = 0.0
    _cleaner: threading.Thread | None = None

    def clean(self, now_ms: int | None = None) -> None:
        """Apply retention and compaction to all topics that need it.

        A record is removed ``retention.ms`` after its timestamp or its append, whichever is later, so that a backfill
        of old records stays readable. ``retention.bytes`` counts bytes as stored.
        """
        if threading.current_thread() is not self._cleaner:
            self.wait_for_cleaner()  # two at a time would get into each other's way
        now = unix_ms() if now_ms is None else now_ms
        for topic in self._listing():
            policy = setting(topic.config, "cleanup.policy")
            for partition in range(topic.partitions):
                try:
                    if "delete" in policy:
                        with self._database.writing() as connection:
                            _retain(connection, catalog.slot(connection, topic.name, partition), now)
                    if "compact" in policy and is_dirty(self._database, topic.name, partition):
                        compact_partition(self._database, topic.name, partition, now)
                except UnknownTopicError:
                    break  # deleted meanwhile

    def clean_sometimes(self, now_ms: int) -> None:
        """Begin to clean, in a thread of its own, if no process has for a minute; called after appends."""
        if time.monotonic() < self._next_clean or (self._cleaner is not None and self._cleaner.is_alive()):
            return
        self._next_clean = time.monotonic() + CLEAN_EVERY_MS / 1000
        with suppress(PenstockError):  # the append before is committed: a failing upkeep must not make it look failed
            with self._database.writing() as connection:
                query = "SELECT value FROM counters WHERE name = 'cleaned_ms'"
                cleaned_ms = int(connection.execute(query).fetchone()[0])
                is_due = cleaned_ms <= now_ms - CLEAN_EVERY_MS
                if is_due:
                    connection.execute("UPDATE counters SET value = ? WHERE name = 'cleaned_ms'", (now_ms,))
            if is_due and cleaned_ms:  # else the log is new
                self._cleaner = threading.Thread(
                    target=self._clean_quietly, args=(now_ms,), name="penstock-log-cleaner", daemon=True
                )
                self._cleaner.start()

    def wait_for_cleaner(self) -> None:
        """Wait until a cleaning that is under way in this process has ended, five seconds at most."""
        if self._cleaner is not None:
            self._cleaner.join(_CLEANER_S)

    def _clean_quietly(self, now_ms: int) -> None:
        with suppress(PenstockError):  # the next one may succeed; closed is closed
            self.clean(now_ms)

    def compact(self, topic: str, partition: int, now_ms: int | None = None) -> None:
        """Keep the last record of each key, and drop tombstones after ``delete.retention.ms``. Offsets stay.

        The partition's last record stays, as in Kafka's active segment: who was away sees that it has missed some.
        """
        compact_partition(self._database, topic, partition, unix_ms() if now_ms is None else now_ms)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Remove all records below an offset and return the new first offset."""
        with self._database.writing() as connection:
            slot = catalog.slot(connection, topic, partition)
            if before_offset > slot.next_offset:
                raise LogError(
                    f"{topic}-{partition} ends at offset {slot.next_offset}: cannot delete before {before_offset}",
                    hint=f"give at most {slot.next_offset}",
                )
            start = max(before_offset, slot.start_offset)
            _start_at(connection, slot, start)
        return start

    def purge(self, before: Mapping[TopicPartition, int]) -> None:
        """Remove the records below these offsets, which nobody needs; one that fails keeps no other from it."""
        errors: list[PenstockError] = []
        for tp, offset in before.items():
            try:
                self.delete_records(tp.topic, tp.partition, offset)
            except PenstockError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def stats(self) -> Mapping[TopicPartition, PartitionStats]:
        """Return the sizes of all partitions."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT t.name, p.partition, p.start_offset, p.next_offset, coalesce(sum(b.count), 0), count(b.id), "
                "coalesce(sum(b.bytes), 0), coalesce(sum(b.raw_bytes), 0), min(b.min_ts), max(b.max_ts) FROM topics t "
                "JOIN partitions p ON p.topic_id = t.id LEFT JOIN batches b ON b.partition_id = p.id "
                "GROUP BY p.id ORDER BY t.name, p.partition"
            ).fetchall()
        return {TopicPartition(row[0], row[1]): PartitionStats(*row[2:]) for row in rows}

    def _listing(self) -> list[TopicInfo]:
        with self._database.reading() as connection:
            return catalog.listing(connection)


def _retain(connection: sqlite3.Connection, slot: catalog.Slot, now_ms: int) -> None:
    start = slot.start_offset
    keep_ms = int(setting(slot.config, "retention.ms"))
    if keep_ms >= 0:
        row = connection.execute(
            "SELECT base_offset FROM batches WHERE partition_id = ? AND max(max_ts, appended_ms) >= ? "
            "ORDER BY last_offset LIMIT 1",
            (slot.id, now_ms - keep_ms),
        ).fetchone()
        start = max(start, row[0] if row else slot.next_offset)
    keep_bytes = int(setting(slot.config, "retention.bytes"))
    if keep_bytes >= 0:
        size = 0
        for base, stored in connection.execute(
            "SELECT base_offset, bytes FROM batches WHERE partition_id = ? ORDER BY last_offset DESC", (slot.id,)
        ):
            size += stored
            if size > keep_bytes:
                after = connection.execute(
                    "SELECT base_offset FROM batches WHERE partition_id = ? AND base_offset > ? "
                    "ORDER BY last_offset LIMIT 1",
                    (slot.id, base),
                ).fetchone()
                # The newest row stays even if it is larger than the limit alone, as Kafka's active segment does.
                start = max(start, after[0] if after else base)
                break
    if start > slot.start_offset:
        _start_at(connection, slot, start)


def _start_at(connection: sqlite3.Connection, slot: catalog.Slot, start: int) -> None:
    connection.execute("DELETE FROM batches WHERE partition_id = ? AND last_offset < ?", (slot.id, start))
    connection.execute("UPDATE partitions SET start_offset = ? WHERE id = ?", (start, slot.id))


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
        kept = _kept(before, last, tombstones_until, appended_ms)
        after = before.filter(pc.or_(kept, pc.equal(before.column("offset"), slot.next_offset - 1)))
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
    cursor = connection.execute(
        f"SELECT id, appended_ms, {COLUMNS} FROM batches "  # noqa: S608
        "WHERE partition_id = ? AND last_offset >= ? AND last_offset < ? ORDER BY last_offset LIMIT ?",
        (slot.id, position, slot.next_offset, _ROWS_A_STEP),
    )
    return [_Row(number, appended_ms, StoredRow(*stored)) for number, appended_ms, *stored in cursor]


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
        key_offsets = pa.Table.from_batches(batches).select(["key", "offset"])
        keys = key_offsets if keys is None else pa.concat_tables([keys, key_offsets])
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
