"""The interface of connectors and their tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Any, ClassVar, Protocol

from penstock.connect.config import NO_MODEL, ConfigDef, ConfigValue, Model, validate
from penstock.connect.data import SinkRecord, SourceRecord
from penstock.connect.data.errors import SettingError
from penstock.log.base import TopicPartition
from penstock.log.client_interfaces import Delivery

__all__ = [
    "Boundaries",
    "Connector",
    "ConnectorContext",
    "ErrantRecordReporter",
    "ExactlyOnce",
    "OffsetReader",
    "SinkConnector",
    "SinkTask",
    "SinkTaskContext",
    "SourceConnector",
    "SourceTask",
    "SourceTaskContext",
    "TransactionContext",
]


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
    """The worker's services for a source's task. Kafka's ``SourceTaskContext``.

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


class _Named:
    """A class that configs name; those whose subclasses are named say that they are a base.

    Attributes:
        java_class: What the class or one above it says, else its own name.
    """

    java_class: ClassVar[str]

    def __init_subclass__(cls, *, is_base: bool = False) -> None:
        super().__init_subclass__()
        if not is_base:
            said = ((each, vars(each)["java_class"]) for each in cls.__mro__ if "java_class" in vars(each))
            cls.java_class = next((name for each, name in said if name != each.__name__), cls.__name__)


class SourceTask(_Named, is_base=True):
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

    context: SourceTaskContext

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


class ErrantRecordReporter(Protocol):
    """A receiver of records that a sink cannot write. Kafka's ``ErrantRecordReporter``."""

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Send a record to the dead letters, as ``errors.*`` says; the future is done when it is written.

        Raises:
            ConnectError: ``errors.tolerance`` is ``none``.
        """
        ...


class SinkTaskContext(Protocol):
    """The worker's services for a sink's task. Kafka's ``SinkTaskContext``.

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


class SinkTask(_Named, is_base=True):
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

    context: SinkTaskContext

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


class ExactlyOnce(Enum):
    """A source's word on exactly-once delivery with a config. Kafka's ``ExactlyOnceSupport``."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class Boundaries(Enum):
    """A source's word on its own transactions. Kafka's ``ConnectorTransactionBoundaries``."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class ConnectorContext(Protocol):
    """The worker's services for a running connector. Kafka's ``ConnectorContext``."""

    def request_task_reconfiguration(self) -> None:
        """Ask the worker to call `task_configs` again, as when tables were added to a database."""
        ...

    def raise_error(self, error: BaseException) -> None:
        """Report a failure outside of the worker's calls: the connector becomes FAILED."""
        ...


class Connector(_Named, is_base=True):
    """A connector. Derive from `SourceConnector` or `SinkConnector`.

    The worker makes an instance for each connector that is created, calls `start` with its config, then `task_configs`,
    and starts a task of ``task_class`` with each config. All methods but `validate` are called from one thread.

    Attributes:
        java_class: The name by which configs name it (``connector.class``); that of Kafka if it is one of Kafka's. By
            default that of the class.
        version: Its version.
        config: The definition of its own settings.
        model: The software whose names its settings have; settings of it that the connector does not have are refused.
        experimental: It was compared neither with what its model does nor with a real peer in all its faults, and
            says so when it starts.
        context: What the worker offers, from before `start` on.
    """

    version: ClassVar[str] = "1.0"
    config: ClassVar[ConfigDef] = ConfigDef()
    model: ClassVar[Model] = NO_MODEL
    experimental: ClassVar[bool] = False
    task_class: ClassVar[type[SourceTask | SinkTask]]
    context: ConnectorContext

    def start(self, settings: Mapping[str, str]) -> None:
        """Take the config; open what is needed to watch for changes of the tasks' work.

        Raises:
            ConnectError: It cannot start: it becomes FAILED.
        """

    def stop(self) -> None:
        """Let go of what `start` opened."""

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the configs of the tasks, at most ``max_tasks``. None at all: there is nothing to do now."""
        raise NotImplementedError

    def validate(self, settings: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Validate a config, by default by the definition and by `contradictions`."""
        values = validate(self.config, settings)
        if not any(value.errors for value in values.values()):
            parsed = {name: value.value for name, value in values.items()}
            for name, reason in self.contradictions(parsed):
                values[name].errors.append(SettingError.invalid(name, parsed[name], reason).message)
        return values

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:  # noqa: ARG002 - none by default
        """Return settings that do not go together, of a config whose values are right by themselves.

        Args:
            parsed: The values of all settings.

        Returns:
            Names of settings, each with what is wrong about it.
        """
        return ()

    def parse(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of all settings.

        Raises:
            SettingError: One is wrong, is missing, or contradicts another.
        """
        parsed = self.config.parse(settings)
        for name, reason in self.contradictions(parsed):
            raise SettingError.invalid(name, parsed[name], reason)
        return parsed


class SourceConnector(Connector, is_base=True):
    """A connector whose tasks read from another system and write to topics. Kafka's ``SourceConnector``.

    Example:
        >>> from penstock.connect.config import Kind, Setting
        >>> class Counter(SourceTask):
        ...     pass
        >>> class CounterConnector(SourceConnector):
        ...     task_class = Counter
        ...     config = ConfigDef([Setting(name="topic", kind=Kind.STRING)])
        ...
        ...     def start(self, settings):
        ...         self.settings = dict(settings)
        ...
        ...     def task_configs(self, max_tasks):
        ...         return [self.settings]
        >>> connector = CounterConnector()
        >>> connector.start({"topic": "numbers"})
        >>> connector.task_configs(3)
        [{'topic': 'numbers'}]
    """

    task_class: ClassVar[type[SourceTask]]

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:  # noqa: ARG002 - for those that know
        """Return whether records come exactly once with this config; None: it does not say."""
        return None

    def can_define_transaction_boundaries(self, settings: Mapping[str, str]) -> Boundaries | None:  # noqa: ARG002
        """Return whether ``transaction.boundary=connector`` can be used."""
        return Boundaries.UNSUPPORTED

    def alter_offsets(
        self,
        settings: Mapping[str, str],  # noqa: ARG002 - for those that know
        offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],  # noqa: ARG002
    ) -> bool:
        """Check offsets that a user wants to set, before they are stored.

        Args:
            settings: The connector's config.
            offsets: Source partitions and their new offsets; None: the offset is deleted.

        Returns:
            Whether the connector has checked them.

        Raises:
            ConnectError: They are refused.
            NotImplementedError: The connector does not support it. Kafka's ``UnsupportedOperationException``.
        """
        return False


class SinkConnector(Connector, is_base=True):
    """A connector whose tasks read topics and write to another system. Kafka's ``SinkConnector``."""

    task_class: ClassVar[type[SinkTask]]

    def alter_offsets(
        self,
        settings: Mapping[str, str],  # noqa: ARG002 - for those that know
        offsets: Mapping[TopicPartition, int | None],  # noqa: ARG002
    ) -> bool:
        """Check offsets of the connector's group that a user wants to set; None: the offset is deleted.

        Returns:
            Whether the connector has checked them.

        Raises:
            ConnectError: They are refused.
            NotImplementedError: The connector does not support it. Kafka's ``UnsupportedOperationException``.
        """
        return False
