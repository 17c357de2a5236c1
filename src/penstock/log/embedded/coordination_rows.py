"""The rows by which clients coordinate: records that change by compare-and-set, and the committed offsets of groups."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping

from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.fenced_record import RecordName, StoredRecord, overtaken

__all__ = ["RecordChange", "read_row", "replace_row", "write_offsets"]


class RecordChange:
    """A change of a record: it succeeds if the record has this version."""

    def __init__(self, name: RecordName, version: int, value: bytes | None) -> None:
        self.name, self.version, self.value, self.attempt = name, version, value, secrets.token_hex(8)

    def done(self) -> StoredRecord:
        """Return the record after the change."""
        return StoredRecord(self.value, self.version + 1, self.attempt)


def read_row(connection: sqlite3.Connection, application: str, writer: str) -> StoredRecord:
    """Read a record of the table."""
    row = connection.execute(
        "SELECT value, version, attempt FROM fenced_records WHERE name = ?", (f"{application}-{writer}",)
    ).fetchone()
    if row is None:
        return StoredRecord(None, -1)
    return StoredRecord(None if row[0] is None else row[0].encode(), row[1], row[2])


def replace_row(connection: sqlite3.Connection, change: RecordChange) -> None:
    """Replace a record of the table, within a transaction.

    Raises:
        FencedError: It has another version.
    """
    name = f"{change.name.application}-{change.name.writer}"
    text = None if change.name.is_in_topic or change.value is None else change.value.decode()
    row = (change.version + 1, change.attempt, text)
    if change.version < 0:
        done = connection.execute(
            "INSERT INTO fenced_records (version, attempt, value, name) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*row, name),
        )
    else:
        done = connection.execute(
            "UPDATE fenced_records SET version = ?, attempt = ?, value = ? WHERE name = ? AND version = ?",
            (*row, name, change.version),
        )
    if done.rowcount != 1:
        raise overtaken(change.name)


def write_offsets(
    connection: sqlite3.Connection, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int
) -> None:
    """Store a group's offsets; their earlier metadata is replaced too."""
    connection.executemany(
        "INSERT OR REPLACE INTO group_offsets VALUES (?, ?, ?, ?, ?)",
        [(group, tp.topic, tp.partition, each.offset, now_ms) for tp, each in offsets.items()],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO group_notes VALUES (?, ?, ?, ?)",
        [(group, tp.topic, tp.partition, each.metadata) for tp, each in offsets.items()],
    )
