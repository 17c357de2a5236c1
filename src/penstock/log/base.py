"""The seam of topic logs: what the embedded log (on disk, in memory) and Kafka both give.

Offsets are sparse: compaction and transactions leave gaps, so the next offset after a read is part of its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa

__all__ = [
    "HEADERS_TYPE",
    "RECORD_SCHEMA",
    "Fetched",
    "LogTransaction",
    "OffsetAndMetadata",
    "OffsetAndTime",
    "TopicInfo",
    "TopicLog",
    "TopicPartition",
]

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORD_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),  # milliseconds since the epoch
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("headers", HEADERS_TYPE),  # null when there are none
    ]
)
Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OffsetAndTime:
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A group's next offset, and the text that was committed with it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records in offset order (RECORD_SCHEMA), and where to read on."""

    records: pa.RecordBatch
    next_offset: int


class LogTransaction(Protocol):
    """One atomic unit: all of it becomes visible to read_committed readers, or none."""

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        """Records as RECORD_SCHEMA; the ``offset`` column may be absent and is not read."""
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    def put_ledger(self, application: str, task: str, batch: int) -> None:
        """Notes that this task has written batch ``batch``."""
        ...


class TopicLog(Protocol):
    """A log of topics; safe to use from several processes at once."""

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def topics(self) -> list[TopicInfo]: ...
    def topic(self, name: str) -> TopicInfo:
        """Raises UnknownTopicError with the nearest names."""
        ...

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> int:
        """Appends outside any transaction; gives the first offset."""
        ...

    def transaction(self, transactional_id: str) -> AbstractContextManager[LogTransaction]:
        """Commits when the block ends, aborts when it raises."""
        ...

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = 50_000,
        isolation: Isolation = "read_committed",
    ) -> Fetched: ...

    def read_range(self, topic: str, partition: int, start: int, end: int) -> Sequence[pa.RecordBatch]:
        """All committed records with start <= offset < end, as stored batches (few copies)."""
        ...

    def beginning_offset(self, topic: str, partition: int) -> int: ...
    def end_offset(self, topic: str, partition: int) -> int: ...
    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> OffsetAndTime | None:
        """The first record whose timestamp is at least this; None if there is none."""
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Sets the group's next offsets, whoever its members are."""
        ...

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]: ...
    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """As ``committed_offsets``, with what was noted beside each: a running application leaves its mark there."""
        ...

    def ledger(self, application: str) -> dict[str, int]:
        """Task -> last batch written."""
        ...

    def close(self) -> None: ...
