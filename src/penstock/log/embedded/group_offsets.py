"""The committed offsets of groups in an embedded log."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from penstock.log.base import OffsetAndMetadata, TopicPartition

__all__ = ["write_offsets"]


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
