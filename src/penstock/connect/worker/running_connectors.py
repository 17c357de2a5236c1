"""Connectors of a worker that run: their instances, their states, the configs of their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.base.log_lines import own_logger
from penstock.connect.api import Connector
from penstock.connect.plugins import Plugin, PluginKind, Plugins
from penstock.errors import ConnectError

__all__ = ["ConnectorSlot", "TooManyTasksError", "task_configs"]

_log = own_logger(__name__)


class TooManyTasksError(ConnectError):
    """A connector makes more tasks than its config allows. Kafka's ``TooManyTasksException``."""

    java_class: ClassVar[str] = "org.apache.kafka.connect.runtime.TooManyTasksException"


class ConnectorSlot:
    """A connector that this worker has.

    Attributes:
        name: Its name.
        config: Its config, as it is stored.
        revision: The number of this config, which each change and each creation makes larger.
        target: The state that it is in: STARTED, PAUSED, STOPPED; empty before the first.
        failed: It could not be brought into that state.
        reconfigures: It has asked to make the configs of its tasks again.
        task_configs_error: Why they could not be made.
    """

    def __init__(self, name: str, config: Mapping[str, str | None], revision: int) -> None:
        self.name = name
        self.revision = revision
        self.config = dict(config)
        self.target = ""
        self.failed = False
        self.reconfigures = False
        self.task_configs_error: str | None = None
        self.settings: dict[str, str] = {}
        self.running = False
        self.plugin: Plugin | None = None
        self._connector: Connector | None = None

    def make(self, plugins: Plugins, resolved: Mapping[str, str | None]) -> None:
        """Make the instance.

        Raises:
            LookupError: There is no such class.
        """
        self.plugin = plugins.connector(resolved.get("connector.class") or "")
        self.settings = {name: value for name, value in resolved.items() if value is not None}
        self._connector = self.plugin.make()
        self._connector.context = _ConnectorContext(self)

    @property
    def version(self) -> str | None:
        """The version of the connector."""
        return None if self.plugin is None else self.plugin.version

    @property
    def is_source(self) -> bool:
        """Whether it is a source."""
        return self.plugin is not None and PluginKind.SOURCE in self.plugin.kinds

    @property
    def connector(self) -> Connector:
        """The instance."""
        assert self._connector is not None  # noqa: S101 - make comes first
        return self._connector

    def move(self, target: str) -> None:
        """Start or stop it, as the state wants.

        Raises:
            Exception: Whatever the connector raises.
        """
        self.target = target
        if target == "STARTED" and not self.running:
            self.connector.start(dict(self.settings))
            self.running, self.failed = True, False
        elif target != "STARTED" and self.running:
            self.stop()

    def stop(self) -> None:
        """Stop it; an error of its own is logged."""
        if self.running:
            self.running = False
            try:
                self.connector.stop()
            except Exception:  # noqa: BLE001 - it is stopped anyway
                _log.warning("connector %s did not stop cleanly", self.name, exc_info=True)


class _ConnectorContext:
    """The `ConnectorContext` of a connector."""

    def __init__(self, slot: ConnectorSlot) -> None:
        self._slot = slot

    def request_task_reconfiguration(self) -> None:
        """Let the worker call ``task_configs`` again."""
        self._slot.reconfigures = True

    def raise_error(self, error: BaseException) -> None:
        """Report a failure."""
        _log.error("connector %s reports a failure: %s", self._slot.name, error)
        self._slot.failed = True


def task_configs(slot: ConnectorSlot) -> list[dict[str, str]]:
    """Return the configs of a connector's tasks, as they are stored.

    Raises:
        TooManyTasksError: There are more than ``tasks.max``.
    """
    most = int(slot.settings.get("tasks.max") or 1)
    configs = slot.connector.task_configs(most)
    if len(configs) > most:
        text = (
            f"The connector {slot.name} has generated {len(configs)} tasks, which is greater than {most}, the maximum "
            "number of tasks it is configured to create. "
        )
        if str(slot.settings.get("tasks.max.enforce", "true")).strip().lower() == "true":
            raise TooManyTasksError(
                f"{text}This behaviour should be considered a bug and is disallowed. If necessary, it can be permitted "
                "by reconfiguring the connector with 'tasks.max.enforce' set to false; however, this option will be "
                "removed in a future release of Kafka Connect."
            )
        _log.warning("%sThis will be disallowed in a future release.", text)
    more = {"task.class": slot.connector.task_class.java_class}
    if not slot.is_source:
        more |= {name: slot.settings[name] for name in ("topics", "topics.regex") if name in slot.settings}
    return [_stored({**config, **more}, slot) for config in configs]


def _stored(config: dict[str, str], slot: ConnectorSlot) -> dict[str, str]:
    """Return a task's config with references to config providers in place of the values that came from them."""
    stored = {name: str(value) for name, value in config.items() if value is not None}
    for name, value in slot.config.items():
        if value is not None and "${" in value and stored.get(name) == slot.settings.get(name):
            stored[name] = value
    return stored
