"""Connectors: they check their config and divide the work among tasks, which move the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Protocol

from penstock.connect.api.sink_task import SinkTask
from penstock.connect.api.source_task import SourceTask
from penstock.connect.config import NO_MODEL, ConfigDef, ConfigValue, Model, validate
from penstock.connect.data.errors import SettingError
from penstock.log.base import TopicPartition

__all__ = ["Boundaries", "Connector", "ConnectorContext", "ExactlyOnce", "SinkConnector", "SourceConnector"]


class ExactlyOnce(Enum):
    """Whether a source delivers exactly once with a config. Kafka's ``ExactlyOnceSupport``."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class Boundaries(Enum):
    """Whether a source can say where its transactions end. Kafka's ``ConnectorTransactionBoundaries``."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class ConnectorContext(Protocol):
    """What a worker offers to a running connector. Kafka's ``ConnectorContext``."""

    def request_task_reconfiguration(self) -> None:
        """Ask the worker to call `task_configs` again, as when tables were added to a database."""
        ...

    def raise_error(self, error: BaseException) -> None:
        """Report a failure outside of the worker's calls: the connector becomes FAILED."""
        ...


class Connector:
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

    java_class: ClassVar[str]
    version: ClassVar[str] = "1.0"
    config: ClassVar[ConfigDef] = ConfigDef()
    model: ClassVar[Model] = NO_MODEL
    experimental: ClassVar[bool] = False
    task_class: ClassVar[type[SourceTask | SinkTask]]
    context: ConnectorContext

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "java_class") and hasattr(cls, "task_class"):
            cls.java_class = cls.__name__

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
        """Settings that do not go together, of a config whose values are right by themselves.

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


class SourceConnector(Connector):
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


class SinkConnector(Connector):
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
