"""The interface of topic logs, which the embedded log (on disk, in memory) and Kafka implement.

Offsets are sparse: compaction and transactions leave gaps, so the next offset after a read is part of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Self, runtime_checkable

import pyarrow as pa

from penstock.errors import FencedError
from penstock.log.application_needs import ApplicationNeeds
from penstock.log.fenced_record import FencedRecord, RecordName

__all__ = [
    "APPLICATION_INSTANCE",
    "HEADERS_TYPE",
    "RECORD_SCHEMA",
    "Fetched",
    "GroupMember",
    "GroupMembership",
    "GroupState",
    "HidesOffsets",
    "Isolation",
    "Lease",
    "LogTransaction",
    "OffsetAndMetadata",
    "OffsetAndTime",
    "Span",
    "StreamsMembership",
    "Stretch",
    "TopicInfo",
    "TopicLog",
    "TopicPartition",
    "membership_refused",
]


# Leases


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run an application; a higher epoch fences lower ones.

    ``process_start`` is the start of its holder's process, see `penstock.log.processes.process_start`.
    """

    application: str
    owner: str
    epoch: int
    host: str
    pid: int
    since_ms: int
    heartbeat_ms: int
    ttl_ms: int
    released: bool
    process_start: str = ""


# Memberships


class GroupMembership(NamedTuple):
    """The member of its group that an application is: a commit in its name fails once the group has removed it.

    Attributes:
        member: The member id, assigned by the group.
        instance: The ``group.instance.id``.
        generation: The generation of the group.
    """

    member: str
    instance: str
    generation: int


@dataclass(frozen=True, slots=True)
class StreamsMembership:
    """A stream thread's membership of a streams group (KIP-1071): the group fences commits, and no lease is needed.

    Attributes:
        member: The member id, made by the member itself.
        epoch: The newest epoch that the thread knows. An older one than the group's is accepted for the partitions of
            tasks that the member has had since then (KIP-1251).
        instance: The ``group.instance.id``; empty: it has none.
    """

    member: str
    epoch: int
    instance: str = ""


def membership_refused(
    group: str, membership: StreamsMembership, reason: Literal["stale", "unknown"], details: str
) -> FencedError:
    """Make the error of a commit by a member that has lost its tasks, or its place in the group."""
    return FencedError(
        f"member {membership.member} of group {group!r} may not commit as of epoch {membership.epoch}: {details}",
        hint="Others have its tasks, or will have them soon: close them without a commit, and join again.",
        group=group, member=membership.member, epoch=membership.epoch, membership=reason,
    )  # fmt: skip


# Logs

APPLICATION_INSTANCE = "penstock-application"  # the group.instance.id of a running application in its own group
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
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OffsetAndTime:
    """The offset of a record and its timestamp in milliseconds."""

    offset: int
    timestamp: int


class Span(NamedTuple):
    """Offsets of a partition from ``start`` to before ``end``, and how many (``most``) of them are wanted at most."""

    start: int
    end: int
    most: int


class Stretch(NamedTuple):
    """Consecutive records: the offset after the last of them, and the range of their timestamps."""

    following: int
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A group's next offset, and the text that was committed with it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer in a group.

    Attributes:
        member: The member id, assigned by the group.
        instance: The ``group.instance.id`` of a static member.
        client: Its ``client.id``.
        host: The host that it runs on.
        pid: Its process id, if the log knows it; else 0.
        topics: The topics that it has subscribed to, if the log knows them; else the topics that it reads.
        assignors: The assignors that it knows.
        owned: The partitions that it reads.
        tasks: Its tasks by role ("active", "standby" or "warmup"), if it is a stream thread.
    """

    member: str
    instance: str
    client: str
    host: str
    pid: int
    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    owned: tuple[TopicPartition, ...]
    tasks: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupState:
    """A snapshot of a group; ``state`` is one of Kafka's names: Empty, Stable, PreparingRebalance, Reconciling, ..."""

    state: str
    assignor: str
    members: tuple[GroupMember, ...]

    @property
    def consumers(self) -> tuple[GroupMember, ...]:
        """The members without the running application itself, which its lease describes."""
        return tuple(each for each in self.members if each.instance != APPLICATION_INSTANCE)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records in offset order (RECORD_SCHEMA), and the offset to read next."""

    records: pa.RecordBatch
    next_offset: int


class LogTransaction(Protocol):
    """One atomic unit of writes: read_committed readers see all of it or nothing.

    ``already_written`` is True after the commit if the ledger shows that this very batch was written before: then
    nothing is written again. ``first_offsets`` and ``following`` have after the commit, for each partition, the offset
    of its first record and the one after its last, where they are known.
    """

    already_written: bool
    first_offsets: dict[TopicPartition, int]
    following: dict[TopicPartition, int]

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        """Add records (RECORD_SCHEMA); the ``offset`` column may be absent and is ignored."""
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    def ask_before_repeating(self, is_written: Callable[[], bool]) -> None:
        """Set a check for a transaction without a ledger entry: returns whether it is written already.

        It compares what is written with what the caller has read, and raises FencedError if another writer was here.
        Nobody else can write between the check and the commit. Kafka: it is asked when the producer was initialised,
        which fences others; so also before a repetition, as a commit whose answer was lost may have succeeded.
        """
        ...

    def put_ledger(self, application: str, task: str, batch: int, inputs: str = "") -> None:
        """Record that this task has written batch ``batch``; the commit checks that it had not.

        ``inputs`` is a checksum of the batch's inputs. The commit raises CheckpointMismatchError if the ledger has a
        batch of the same number with other inputs; entries without a checksum are accepted.
        """
        ...


@runtime_checkable
class HidesOffsets(Protocol):
    """A log in which not each offset is that of a record."""

    def hidden_offsets(self, topic: str, partition: int, start: int, end: int) -> set[int]:
        """Return the offsets of a range that readers never see: of transactions' markers and of aborted records.

        Those of records that compaction has removed are not among them.
        """
        ...


class TopicLog(Protocol):
    """A log of topics; safe to use from several processes and threads at once."""

    @property
    def url(self) -> str:
        """The URL that opens this log again, in any process (with the settings that it was opened with)."""
        ...

    def identity(self) -> str:
        """Return the id of this log, which never changes; another log at the same URL has another one.

        Embedded: made when the file is created. Kafka: the cluster's id.
        """
        ...

    def give_up_at_end(self, is_ending: Callable[[], bool], within_s: float) -> None:
        """Have requests that fail be tried again for no longer than this once their application is to end.

        Kafka: else a broker that is away would hold up the end for as long as requests are tried again. An embedded log
        is always there.

        Args:
            is_ending: Returns whether the application is to end.
            within_s: The time for all requests from then on.
        """
        ...

    # Topics

    def require_able(self, needs: ApplicationNeeds) -> None:
        """Check that an application can run over this log, with the rights of its user; an embedded log lacks nothing.

        Raises:
            LogError: Kafka: the brokers lack something.
            AuthorizationError: Kafka: rights are missing.
        """
        ...

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; raises TopicExistsError if there is one of that name.

        Args:
            name: The topic.
            partitions: The number of its partitions.
            config: Its settings; ``replication.factor`` among them is the number of its copies, where a log has some.
        """
        ...

    def create_partitions(self, name: str, total: int) -> None: ...
    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some of a topic's settings; None resets one to its default."""
        ...

    def delete_topic(self, name: str) -> None: ...
    def topics(self) -> list[TopicInfo]:
        """List all topics by name, without the log's internal ones."""
        ...

    def topic(self, name: str) -> TopicInfo:
        """Describe a topic; raises UnknownTopicError, which names similar topics, if there is none."""
        ...

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the ids of topics; a topic that is deleted and created again has another id.

        Topics that do not exist are left out, as are all topics of a cluster without topic ids (Kafka before 2.8).
        """
        ...

    def partitions(self, topic: str) -> int:
        """Count a topic's partitions; on a secured cluster this needs fewer rights than reading its settings."""
        ...

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Remove all records below an offset and return the new first offset."""
        ...

    def purge(self, before: Mapping[TopicPartition, int]) -> None:
        """Remove the records below these offsets, which nobody needs, in one attempt."""
        ...

    # Records

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> int:
        """Append outside any transaction and return the first offset."""
        ...

    def transaction(self, transactional_id: str, epoch: int | None = None) -> AbstractContextManager[LogTransaction]:
        """Begin a transaction, which commits when the block ends and writes nothing if it raises.

        Args:
            transactional_id: The id of the writer; a newer writer of the same id fences older ones. An empty id is
                never fenced; on Kafka its writes are then idempotent but not atomic.
            epoch: The epoch of the application's lease. A newer instance fences older ones.

        Raises:
            FencedError: A newer attempt or instance has taken over.
        """
        ...

    def prepare_transactions(self, transactional_ids: Sequence[str], epoch: int | None) -> None:
        """Announce transactions that begin soon, so that the log can prepare them in advance."""
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
        """Read all committed records with start <= offset < end, as stored batches (few copies)."""
        ...

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Like ``read_range``, batch by batch: memory does not grow with the range."""
        ...

    # Offsets

    def beginning_offset(self, topic: str, partition: int) -> int: ...
    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last committed record (Kafka: the last stable offset)."""
        ...

    def settled_ends(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Wait until all that has been written to these partitions so far is committed or aborted; return their ends.

        A producer's commit is final before each partition shows its end: what follows from a commit that has returned
        is read after this.

        Raises:
            LogUnavailableError: Kafka: a transaction stays open for longer than ``task.timeout.ms``.
        """
        ...

    def beginning_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]: ...
    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]: ...
    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> OffsetAndTime | None:
        """Find the first record whose timestamp is at least this; None if there is none."""
        ...

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        """Like ``offset_for_time``, for many partitions at once."""
        ...

    def stretches(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, list[Stretch]]:
        """List stretches of records from the start of each span until they hold its ``most``, without reading them."""
        ...

    def record_sizes(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Estimate the size of the records of these ranges (start, end) in bytes, from a sample."""
        ...

    def wait_for_data(self, known_ends: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
        """Wait until partitions end elsewhere than at ``known_ends`` (see ``end_offsets``); return their end offsets.

        The wait ends as soon as there is a new record; waiting for many partitions costs little.
        """
        ...

    # Groups

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "", lease: Lease | None = None
    ) -> None:
        """Set the group's next offsets; it must have no members but the running application of ``lease``.

        Raises:
            LogError: The group has other members.
            FencedError: ``lease`` was taken over by a newer instance.
        """
        ...

    def commit_with_metadata(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set the next offsets of a group without members, each with a text of its own."""
        ...

    def commit_if_empty(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> bool:
        """Set the next offsets of a group that has no stream threads; return False if it has some, without a commit."""
        ...

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]: ...
    def group_offsets(
        self, group: str, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Like ``committed_offsets``, with the metadata of each; a running application leaves its mark there.

        Args:
            group: The group.
            places: The partitions; None: all. Who goes on after another owner must name them: a transaction that has
                returned, and is about to commit the first offset of a partition, is waited for only then.
        """
        ...

    def groups(self) -> list[str]: ...
    def group_state(self, group: str) -> GroupState:
        """Return a group's state and members; it is Empty also if there is no such group."""
        ...

    def delete_offsets(self, group: str, places: Iterable[TopicPartition], lease: Lease | None = None) -> None:
        """Delete the group's offsets of these partitions; it must have no members but the holder of ``lease``."""
        ...

    def delete_group(self, group: str, lease: Lease | None = None) -> None:
        """Delete a group and its offsets; raises LogError if it has members but the holder of ``lease``."""
        ...

    # Applications

    def ledger(self, application: str) -> dict[str, int]:
        """Return the last batch that each task has written."""
        ...

    def ledger_inputs(self, application: str) -> dict[str, str]:
        """Return the checksum of the inputs of each task's last batch; tasks without one are left out."""
        ...

    def clear_ledger(self, application: str) -> None:
        """Delete an application's ledger; part of a reset, after its checkpoint is deleted."""
        ...

    def note_planned(self, application: str, epoch: int, batch: str) -> None:
        """Store the newest planned batch in place of the one before, in case the checkpoint is lost.

        It is durable when this returns. The caller holds the lease of ``epoch``; if the log can see that a newer
        instance has it, this raises FencedError.
        """
        ...

    def planned(self, application: str) -> str | None:
        """Return the newest planned batch, as it was stored; None if there is none."""
        ...

    def fenced_record(self, name: RecordName, lease: tuple[str, int] | None = None) -> FencedRecord:
        """Return a record that only one writer at a time may change, always the same one for a lease.

        Args:
            name: Its name.
            lease: The application and the epoch of the lease that guards it: after it is lost, the record may not be
                changed.
        """
        ...

    def prepare_lease(self, application: str) -> None:
        """Make what the lease of an application is kept in, if it is not there; nobody has the lease by that."""
        ...

    def acquire_lease(
        self,
        application: str,
        owner: str,
        ttl_ms: int = 30_000,
        *,
        force: bool = False,
        replacing: Lease | None = None,
    ) -> Lease:
        """Take the right to run an application, with a new epoch; raises FencedError if another instance runs.

        With ``replacing`` it only succeeds that lease: raises FencedError if another instance has had it since.
        """
        ...

    def show_as_member(
        self, lease: Lease, topics: Iterable[str], committed: Callable[[], Mapping[TopicPartition, int]] = dict
    ) -> None:
        """Show the application as the member of its group that reads these topics, until the lease is released.

        Args:
            lease: The lease.
            topics: The topics; those that are still to be created count as subscribed too.
            committed: Returns the offsets that stream threads have committed, as far as they are known.
        """
        ...

    def membership(self, timeout_s: float = 0.0) -> GroupMembership | None:
        """Return the application's membership of its group, in whose name its threads commit; None if it has none.

        Args:
            timeout_s: The longest wait while it joins.

        Raises:
            FencedError: A newer instance has taken over the group, or another program has removed the application.
        """
        ...

    def renew_lease(self, lease: Lease) -> None:
        """Send a heartbeat; raises FencedError if a newer instance has taken over."""
        ...

    def release_lease(self, lease: Lease) -> None: ...
    def lease(self, application: str) -> Lease | None:
        """Return the lease of the instance that runs, or last ran, an application."""
        ...

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
