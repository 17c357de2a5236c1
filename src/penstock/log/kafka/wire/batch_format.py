"""The layout of Kafka's record batches (message format 2), which readers and writers share."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from penstock.errors import LogError

if TYPE_CHECKING:
    from penstock.log.base import TopicPartition

__all__ = [
    "ABORT_MARKER",
    "AFTER_CRC",
    "CODEC",
    "CONTROL",
    "CRC_ENDS",
    "HEADER",
    "LENGTH_ENDS",
    "LOG_APPEND_TIME",
    "MAGIC",
    "TRANSACTIONAL",
    "DamagedError",
    "damaged",
]

# base offset, length after this field, leader epoch, magic, crc, attributes, last offset delta, first and last
# timestamp, producer id, producer epoch, first sequence, count
HEADER = struct.Struct(">qiibIhiqqqhii")
AFTER_CRC = struct.Struct(">hiqqqhii")
LENGTH_ENDS = 12
CRC_ENDS = 21
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
MAGIC = 2
ABORT_MARKER = 0


class DamagedError(ValueError):
    """A batch with invalid bytes; the reader adds the partition and the offset.

    Attributes:
        row: The row of the invalid record among those that are read together, if it is one record.
        hint: The remedy, if the broker has not damaged the batch.
    """

    def __init__(self, problem: str, *, row: int | None = None, hint: str = "") -> None:
        super().__init__(problem)
        self.row = row
        self.hint = hint


def damaged(tp: TopicPartition, offset: int, error: DamagedError) -> LogError:
    """Make the error for a batch that begins at an offset."""
    return LogError(
        f"{tp.topic}-{tp.partition}: the record batch at offset {offset} is damaged: {error}"
        if not error.hint
        else f"{tp.topic}-{tp.partition}: the record batch at offset {offset} is not read: {error}",
        hint=error.hint or "A broker's disk or the network damaged it: let another replica lead the partition.",
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
    )
