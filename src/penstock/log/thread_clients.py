"""The interface of a stream thread's own consumer and producer, which the embedded log and Kafka implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from penstock.log.base import Fetched, GroupMembership, OffsetAndMetadata, StreamsMembership, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log.streams_groups.description import StreamsCoordinator

__all__ = ["CHANGELOG_WRITER", "CommitProducer", "Fetcher", "Part", "ThreadClients", "Writer"]

Part = tuple[str, int, "pa.RecordBatch"]
"""Topic, partition, and records for it (``RECORD_SCHEMA``; the ``offset`` column may be absent and is ignored)."""


CHANGELOG_WRITER = "changelogs"  # the `Writer.thread` of what conversions write into changelogs


def _no_membership() -> GroupMembership | StreamsMembership | None:
    return None


@dataclass(frozen=True, slots=True)
class Writer:
    """The identity of a thread's producer.

    Attributes:
        application: The ``application.id``, which is the group whose offsets are committed.
        thread: The name of the thread, such as ``thread-0``; the transactional id is ``<application.id>-<thread>``.
        epoch: The epoch of the application's lease, under which the thread was started; None: it has no lease, and
            newer producers of the same id alone fence this one.
        exactly_once: Whether records and offsets are committed together (``exactly_once_v2``).
        membership: Returns the present membership in whose name offsets are committed: the application's, of its
            group, or the thread's, of its streams group. None: it has none, as it may not join. Raises FencedError if
            another program has removed it.
    """

    application: str
    thread: str
    epoch: int | None
    exactly_once: bool = True
    membership: Callable[[], GroupMembership | StreamsMembership | None] = _no_membership

    @property
    def transactional_id(self) -> str:
        """Kafka's ``transactional.id``."""
        return f"{self.application}-{self.thread}"

    @property
    def lease(self) -> tuple[str, int] | None:
        """The lease that allows it to write: the application and its epoch."""
        return None if self.epoch is None else (self.application, self.epoch)


class Fetcher(Protocol):
    """A consumer of many partitions without a group, for one thread.

    It sends one request to each broker for all of its partitions. While it is behind, the next one is sent before the
    records of the last answer are processed; so records are there when they are asked for.
    """

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions from these offsets on, and no others.

        A partition that is assigned already and is to go on at its present position keeps what has been fetched.
        """
        ...

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Fetch these partitions no further until `resume`; records that are on their way still arrive."""
        ...

    def resume(self, places: Iterable[TopicPartition]) -> None: ...

    def poll(self, timeout_s: float) -> dict[TopicPartition, Fetched]:
        """Return the committed records that have arrived, in order of offsets; wait for some until the time-out.

        A partition may be returned with no records and a higher ``next_offset`` (transactions, compaction).
        Temporary failures (a leader that moves, a broker that is away) are retried within; what lasts is logged.

        Raises:
            OffsetOutOfRangeError: Records behind a position are gone; names topic, partition and offset.
            UnknownTopicError: A topic has been deleted.
            LogError: A record batch is damaged.
        """
        ...

    def wake(self) -> None:
        """End the wait of `poll`, or of the next one; from any thread."""
        ...

    def ends(self) -> Mapping[TopicPartition, int]:
        """Return the end of each partition as of its last answer (Kafka: last stable offset); unknown ones are missing.

        A partition whose position has reached its end has no lag, which ``max.task.idle.ms`` asks for (KIP-695).
        """
        ...

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...


class CommitProducer(Protocol):
    """A producer whose commits hold records and its group's offsets: of a stream thread, or of a task of Connect.

    Exactly once: `send` collects, and `commit` writes all of it and the offsets in one transaction. At least once:
    `send` writes at once, without waiting for the answer, and `commit` commits the offsets when all is written.
    """

    @property
    def pending_bytes(self) -> int:
        """The size of the records that wait for `commit`."""
        ...

    @property
    def firsts(self) -> Mapping[TopicPartition, int]:
        """The offset of the first record of the last commit in each partition that it has written.

        Kafka: other producers may have written between the batches of a commit.
        """
        ...

    def send(self, parts: Sequence[Part]) -> None:
        """Write records, or collect them for the next commit; without records it waits for what has been sent.

        Raises:
            ProductionError: At least once: the log refuses records for good. ``facts["refused"]`` maps the number of
                the part, of those `collected` and then of these, to its rows; none of these has been taken.
            FencedError: A newer producer of this id, or a newer instance of the application, has taken over.
        """
        ...

    def collect(self, parts: Sequence[Part]) -> int:
        """Collect records for the next commit, also at least once: changelogs, in which a zombie must not write.

        Returns:
            The number of parts.
        """
        ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, int]:
        """Commit everything sent since the last commit together with these offsets of the group.

        An error in the middle is resolved within: the producer takes its transactional id again only as the same
        producer (KIP-360), finds out whether the transaction was committed, and writes it again if not. So after this
        returns it is committed once, and after an error it is not committed, or the application may find it committed
        at its next start.

        Returns:
            The offset after the last record of this commit, for each partition that was written.

        Raises:
            ProductionError: The log refuses records for good; ``facts["refused"]`` maps the number of the part, in the
                order of `send`, to its rows. Nothing is committed; `discard` or `replace` comes next.
            FencedError: A newer producer or instance has taken over. With ``facts["membership"]``, "stale" or
                "unknown": its streams group has given tasks of the thread to others, or has removed it.
            LogUnavailableError: Kafka: it could not be written within ``task.timeout.ms``.

        After an error of the membership nothing is committed, and `replace` makes the producer ready for other tasks.
        After any other error but ProductionError it is of no more use; the thread must end.
        """
        ...

    def collected(self) -> Sequence[Part]:
        """Return the parts that wait for `commit`, in the order of `send`; at least once: for the log's answer."""
        ...

    def replace(self, parts: Sequence[Part]) -> None:
        """Put these parts in place of those that wait for `commit`, as after a ProductionError."""
        ...

    def close(self) -> None:
        """Forget what was not committed, and let go of connections."""
        ...


class ThreadClients(Protocol):
    """The part of a topic log that stream threads use besides `TopicLog`."""

    def fetcher(self, application: str = "") -> Fetcher:
        """Make a fetcher with connections of its own, which reads committed records.

        Args:
            application: The ``application.id``: transactions of its own that hang are ended.
        """
        ...

    def commit_producer(self, writer: Writer) -> CommitProducer:
        """Make the producer of a thread; with ``exactly_once`` it fences all earlier ones of its transactional id.

        Raises:
            FencedError: A newer instance of the application has taken over.
        """
        ...

    def streams_coordinator(self) -> StreamsCoordinator:
        """Return the coordinator of streams groups, with connections of its own, for the caller to close."""
        ...

    def settled_ends(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Wait until all that has been written to these partitions so far is committed or aborted; return their ends.

        A producer's commit is final before each partition shows its end: what follows from a commit that has returned
        is read after this.

        Raises:
            LogUnavailableError: Kafka: a transaction stays open for longer than ``task.timeout.ms``.
        """
        ...

    def fence_threads(self, application: str, threads: Iterable[str], epoch: int | None = None) -> None:
        """Make sure that no present producer of these threads commits anything any more.

        Kafka: their transactional ids are initialised, which also ends their open transactions. Embedded: they get a
        newer epoch. Afterwards they do not change the group's committed offsets until a new producer commits.

        Args:
            application: The application.
            threads: The names of the threads.
            epoch: The epoch of the lease of the caller; None: the threads are of a streams group, without a lease.

        Raises:
            FencedError: The application's lease has a newer epoch.
        """
        ...
