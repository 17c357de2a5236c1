"""Tasks of sources: they return the records that the worker writes, with the offsets to go on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from penstock.connect.data import SourceRecord
from penstock.log.producer_interface import Delivery

__all__ = ["OffsetReader", "SourceTask", "SourceTaskContext", "TransactionContext"]


class OffsetReader(Protocol):
    """The stored source offsets of a connector. Kafka's ``OffsetStorageReader``."""

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the offset to go on from in a source partition; None: there is none."""
        ...

    def offsets(self, partitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        """Return the offsets of several partitions, in their order."""
        ...

    def all(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return all source partitions with their offsets."""
        ...


class TransactionContext(Protocol):
    """The ends of transactions, for ``transaction.boundary=connector``. Kafka's ``TransactionContext``."""

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """End the transaction after this record, or after the batch that `SourceTask.poll` returns next."""
        ...

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Discard what the transaction has, with this record, or with the batch that `SourceTask.poll` returns next."""
        ...


class SourceTaskContext(Protocol):
    """What a worker offers to a source's task. Kafka's ``SourceTaskContext``.

    Attributes:
        settings: The task's config.
        offset_reader: The stored offsets.
        transaction_context: The ends of transactions, if the connector defines them.
        copies: Whether bytes are written as they are: no transformation or converter asks for records.
    """

    @property
    def settings(self) -> Mapping[str, str]: ...
    @property
    def offset_reader(self) -> OffsetReader: ...
    @property
    def transaction_context(self) -> TransactionContext | None: ...
    @property
    def copies(self) -> bool: ...


class SourceTask:
    """A task of a source. Kafka's ``SourceTask``.

    All methods but `stop` are called from one thread. The records of a `poll` and their source offsets are written in
    one transaction, so a task that goes on from its stored offset delivers each record once.

    Attributes:
        java_class: Its name in stored configs (``task.class``), by default that of the class.
        context: What the worker offers, from before `start` on.

    Example:
        >>> class Numbers(SourceTask):
        ...     java_class = "NumbersTask"
        ...
        ...     def start(self, settings):
        ...         stored = self.context.offset_reader.offset({"of": "numbers"})
        ...         self.next = stored["next"] if stored else 0
        ...
        ...     def poll(self):
        ...         self.next += 1
        ...         return [
        ...             SourceRecord(
        ...                 topic="numbers",
        ...                 value=self.next,
        ...                 source_partition={"of": "numbers"},
        ...                 source_offset={"next": self.next},
        ...             )
        ...         ]
    """

    java_class: ClassVar[str]
    context: SourceTaskContext

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "java_class"):
            cls.java_class = cls.__name__

    def start(self, settings: Mapping[str, str]) -> None:
        """Take the config and go to the stored offset.

        Raises:
            ConnectError: It cannot start: the task becomes FAILED.
        """

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next records; none, after a short wait, if there are none now.

        Wait at most about a second: commits, pauses and stops come between two polls.

        Raises:
            RetriableError: Call again later.
            ConnectError: The task becomes FAILED.
        """
        raise NotImplementedError

    def moved_offsets(self) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Return source partitions with the offsets to go on from, where these have moved and there is no record.

        It is asked for after a `poll` without records, once all earlier ones are written; `commit` follows when the
        offsets are stored.
        """
        return ()

    def commit(self) -> None:
        """Acknowledge to the source what is written and stored so far."""

    def commit_record(self, record: SourceRecord, delivery: Delivery | None) -> None:
        """Acknowledge one record; ``delivery`` is None if a transformation or the tolerance of errors dropped it."""

    def stop(self) -> None:
        """End a `poll` that waits, from another thread; let go of what `start` opened."""
