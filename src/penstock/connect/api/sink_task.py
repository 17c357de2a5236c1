"""Tasks of sinks: they write the records that the worker reads from topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar, Protocol

from penstock.connect.data import SinkRecord
from penstock.log.base import TopicPartition

__all__ = ["ErrantRecordReporter", "SinkTask", "SinkTaskContext"]


class ErrantRecordReporter(Protocol):
    """A receiver of records that a sink cannot write. Kafka's ``ErrantRecordReporter``."""

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Send a record to the dead letters, as ``errors.*`` says; the future is done when it is written.

        Raises:
            ConnectError: ``errors.tolerance`` is ``none``.
        """
        ...


class SinkTaskContext(Protocol):
    """What a worker offers to a sink's task. Kafka's ``SinkTaskContext``.

    Attributes:
        settings: The task's config.
        assignment: The partitions that it reads.
        log_identity: The id of the log or cluster that the records come from, for sinks that keep offsets: the offsets
            of another log with topics of the same names mean other records.
        errant_record_reporter: Takes records that cannot be written; None if errors are neither tolerated nor reported.
    """

    @property
    def settings(self) -> Mapping[str, str]: ...
    @property
    def assignment(self) -> Collection[TopicPartition]: ...
    @property
    def log_identity(self) -> str: ...
    @property
    def errant_record_reporter(self) -> ErrantRecordReporter | None: ...

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on.

        A sink that keeps offsets with its data calls it in `SinkTask.open`, also without any: then each record is
        written once, and the task fails if a topic goes on before the offset that was read last, as it was made again.
        """
        ...

    def timeout(self, timeout_ms: int) -> None:
        """Wait so long before the next try, after a RetriableError of `SinkTask.put`."""
        ...

    def pause(self, *places: TopicPartition) -> None:
        """Read these partitions no further until `resume`."""
        ...

    def resume(self, *places: TopicPartition) -> None:
        """Read these partitions again."""
        ...

    def request_commit(self) -> None:
        """Commit offsets soon, before the interval is over."""
        ...


class SinkTask:
    """A task of a sink. Kafka's ``SinkTask``.

    All methods are called from one thread. Offsets are committed after `pre_commit`: what was not flushed comes again.

    Attributes:
        java_class: Its name in stored configs (``task.class``), by default that of the class.
        context: What the worker offers, from before `start` on.

    Example:
        >>> class Collected(SinkTask):
        ...     java_class = "CollectedTask"
        ...
        ...     def start(self, settings):
        ...         self.values = []
        ...
        ...     def put(self, records):
        ...         self.values += [record.value for record in records]
        >>> task = Collected()
        >>> task.start({})
        >>> task.put([SinkRecord(topic="lines", partition=0, value="GET /")])
        >>> task.values
        ['GET /']
    """

    java_class: ClassVar[str]
    context: SinkTaskContext

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "java_class"):
            cls.java_class = cls.__name__

    def start(self, settings: Mapping[str, str]) -> None:
        """Take the config and open the target.

        Raises:
            ConnectError: It cannot start: the task becomes FAILED.
        """

    def open(self, places: Collection[TopicPartition]) -> None:
        """Prepare for partitions that were assigned."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write records, or keep them until `flush`. An empty batch comes when there is nothing to read.

        Raises:
            RetriableError: The same records come again, after the time of `SinkTaskContext.timeout`.
            ConnectError: The task becomes FAILED.
        """
        raise NotImplementedError

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write all that is kept, before these offsets (those after the last record put) are committed."""

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets that may be committed, by default all of them after a `flush`."""
        self.flush(offsets)
        return offsets

    def close(self, places: Collection[TopicPartition]) -> None:
        """Let go of partitions that were taken away; offsets are committed before."""

    def stop(self) -> None:
        """Let go of what `start` opened."""
