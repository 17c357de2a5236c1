"""The seam of topic logs: what the embedded log (on disk, in memory) and Kafka both give.

Offsets are sparse: compaction and transactions leave gaps, so the next offset after a read is part of its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

import pyarrow as pa

__all__ = [
    "HEADERS_TYPE",
    "RECORD_SCHEMA",
    "Fetched",
    "GroupMember",
    "GroupState",
    "Isolation",
    "Lease",
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
class GroupMember:
    """A consumer in a group.

    Attributes:
        member: The id that the group gave it.
        instance: The ``group.instance.id`` of a static member.
        client: Its ``client.id``.
        host: Where it runs.
        pid: Its process, where the log knows that; else 0.
        topics: What it has subscribed to, where the log knows that; else what it reads.
        assignors: Those that it knows.
        owned: What it reads.
    """

    member: str
    instance: str
    client: str
    host: str
    pid: int
    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    owned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group at this moment; ``state`` is Empty, Stable or PreparingRebalance, as Kafka says it."""

    state: str
    assignor: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run an application; a higher epoch fences lower ones."""

    application: str
    owner: str
    epoch: int
    host: str
    pid: int
    since_ms: int
    heartbeat_ms: int
    ttl_ms: int
    released: bool


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records in offset order (RECORD_SCHEMA), and where to read on."""

    records: pa.RecordBatch
    next_offset: int


class LogTransaction(Protocol):
    """One atomic unit: all of it becomes visible to read_committed readers, or none.

    ``already_written`` is True after the commit if the ledger said that this very batch was written before: then
    nothing was written again.
    """

    already_written: bool

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        """Records as RECORD_SCHEMA; the ``offset`` column may be absent and is not read."""
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    def put_ledger(self, application: str, task: str, batch: int) -> None:
        """Notes that this task has written batch ``batch``; the commit checks that it had not."""
        ...


class TopicLog(Protocol):
    """A log of topics; safe to use from several processes and threads at once."""

    @property
    def url(self) -> str:
        """What opens this log again, in any process (with the settings that it was opened with)."""
        ...

    # Topics

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic; raises TopicExistsError if there is one of that name."""
        ...

    def create_partitions(self, name: str, total: int) -> None: ...
    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Sets some of a topic's settings; None returns one to its default."""
        ...

    def delete_topic(self, name: str) -> None: ...
    def topics(self) -> list[TopicInfo]:
        """All topics by name, those of the log's own bookkeeping left out."""
        ...

    def topic(self, name: str) -> TopicInfo:
        """Raises UnknownTopicError with the nearest names."""
        ...

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; a secured cluster tells this to more users than a topic's settings."""
        ...

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Removes all records below an offset; gives the new first offset."""
        ...

    # Records

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> int:
        """Appends outside any transaction; gives the first offset."""
        ...

    def transaction(self, transactional_id: str, epoch: int | None = None) -> AbstractContextManager[LogTransaction]:
        """Commits when the block ends; nothing is written when it raises.

        Args:
            transactional_id: Whose writes these are; a newer attempt of the same fences older ones. An empty one is
                fenced by nobody, and over Kafka its writes are idempotent but not one unit.
            epoch: Of the application's lease. A newer instance fences older ones.

        Raises:
            FencedError: A newer attempt or instance has taken over.
        """
        ...

    def expect_transactions(self, transactional_ids: Sequence[str], epoch: int | None) -> None:
        """Says which transactions come soon, so that what takes time for them can begin."""
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

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """As ``read_range``, in pieces: memory does not grow with the range."""
        ...

    # Offsets

    def beginning_offset(self, topic: str, partition: int) -> int: ...
    def end_offset(self, topic: str, partition: int) -> int:
        """The offset behind the last committed record (Kafka: the last stable offset)."""
        ...

    def beginning_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]: ...
    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]: ...
    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> OffsetAndTime | None:
        """The first record whose timestamp is at least this; None if there is none."""
        ...

    def stretches(self, topic: str, partition: int, start: int, end: int, most: int) -> list[tuple[int, int, int]]:
        """Stretches of records from ``start`` on until they hold ``most``: (next offset, smallest, largest time)."""
        ...

    def wait_for_data(self, known: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
        """Waits until these topics no longer end at ``known`` (see ``end_offsets``); gives where they end then."""
        ...

    # Groups

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Sets the group's next offsets, whoever its members are."""
        ...

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]: ...
    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """As ``committed_offsets``, with what was noted beside each: a running application leaves its mark there."""
        ...

    def groups(self) -> list[str]: ...
    def group_state(self, group: str) -> GroupState:
        """State and members; Empty also if there is no such group."""
        ...

    def delete_offsets(self, group: str, places: Iterable[TopicPartition]) -> None:
        """Forgets where the group is in these partitions; it must have no members."""
        ...

    def delete_group(self, group: str) -> None:
        """Forgets a group and its offsets; raises LogError if it has members."""
        ...

    # Applications

    def ledger(self, application: str) -> dict[str, int]:
        """Task -> last batch written."""
        ...

    def clear_ledger(self, application: str) -> None:
        """Forgets what an application has written; part of a reset, after its checkpoint is deleted."""
        ...

    def acquire_lease(self, application: str, owner: str, ttl_ms: int = 30_000, *, force: bool = False) -> Lease:
        """Takes the right to run an application, with a new epoch; raises FencedError if another instance runs."""
        ...

    def renew_lease(self, lease: Lease) -> None:
        """The heartbeat; raises FencedError if a newer instance has taken over."""
        ...

    def release_lease(self, lease: Lease) -> None: ...
    def lease(self, application: str) -> Lease | None:
        """Who runs, or last ran, an application."""
        ...

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
