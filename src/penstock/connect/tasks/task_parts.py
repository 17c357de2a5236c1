"""What a task is made of, and its link to the worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from penstock.config.prefixes import behind_prefix
from penstock.connect.connectors import known_plugins
from penstock.connect.converters import Converter
from penstock.connect.converters.converter import Role
from penstock.connect.delivery import Converters
from penstock.connect.plugins import Plugin, Plugins
from penstock.connect.storage.config_store import ConnectorTaskId
from penstock.connect.worker_settings import Mode, WorkerConfig, config_providers, known_client_settings
from penstock.log import open_log
from penstock.log.base import TopicLog

__all__ = ["OFFSETS_TOPIC", "TaskLink", "TaskParts", "TaskSpec", "plugins_of", "transactional_id"]

OFFSETS_TOPIC = "penstock.offsets.topic"  # of a standalone worker
_ROLES: dict[str, Role] = {"key.converter": "key", "value.converter": "value", "header.converter": "header"}


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """All that a process needs to run a task.

    Attributes:
        task: The task.
        connector: The connector's config.
        config: The task's config.
        worker: The worker's settings.
        mode: The worker's mode.
        offsets_topic: The topic of source offsets.
        url: The log.
    """

    task: ConnectorTaskId
    connector: Mapping[str, str | None]
    config: Mapping[str, str]
    worker: Mapping[str, str]
    mode: Mode
    offsets_topic: str
    url: str


class TaskLink(Protocol):
    """A running task's link to its worker."""

    @property
    def target(self) -> str:
        """The state that is wanted: STARTED, PAUSED or STOPPED."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait, until another state is wanted."""
        ...

    def report(self, state: str, *, version: str | None = None, trace: str | None = None) -> None:
        """Tell the worker the state."""
        ...

    def uses(self, topic: str) -> None:
        """Tell the worker that the task reads or writes a topic."""
        ...

    def count(self, records: int, error: str | None = None) -> None:
        """Tell the worker of records that were delivered, or of an error that was tolerated."""
        ...


def transactional_id(worker: WorkerConfig, task: ConnectorTaskId) -> str:
    """Return the transactional id of a source's task, as Kafka Connect forms it."""
    return f"{_group(worker)}-{task[0]}-{task[1]}"


def _group(worker: WorkerConfig) -> str:
    return worker.given.get("group.id") or "standalone"


@lru_cache(maxsize=8)
def plugins_of(paths: tuple[str, ...]) -> Plugins:
    """Return the plugins of a worker with this ``plugin.path``."""
    return known_plugins(paths)


class TaskParts:
    """The plugins and clients of a task, made of its spec.

    Raises:
        ConfigError: The log cannot be opened.
        SettingError: A converter refuses its settings.
    """

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self.worker = WorkerConfig.of(spec.worker, spec.mode)
        self.plugins = plugins_of(tuple(self.worker["plugin.path"]))
        providers = config_providers(spec.worker)
        self.connector = providers.resolve(spec.connector)
        self.config = {name: value for name, value in providers.resolve(spec.config).items() if value is not None}
        self.plugin: Plugin = self.plugins.connector(self.connector.get("connector.class") or "")
        self._logs: list[TopicLog] = []

    @property
    def name(self) -> str:
        """The connector's name."""
        return self.spec.task[0]

    @property
    def transactional_id(self) -> str:
        """The id of the task's transactions, by which a newer run fences the ones before."""
        return transactional_id(self.worker, self.spec.task)

    @property
    def group(self) -> str:
        """The group of workers, with which the ids of transactions begin."""
        return _group(self.worker)

    def converters(self) -> Converters:
        """Return the converters of the connector, configured."""
        return Converters(*(self.converter(f"{role}.converter") for role in ("key", "value", "header")))

    def open_log(self, client: str, defaults: Mapping[str, str] | None = None) -> TopicLog:
        """Open the log with the connector's own settings of a client: ``producer``, ``consumer`` or ``admin``.

        Args:
            client: The client.
            defaults: Settings of clients that the worker's and the connector's override.
        """
        own = {**self.worker.client_settings, **self._client_overrides(client)}
        log = open_log(self.spec.url, {**(defaults or {}), **own})
        self._logs.append(log)
        return log

    def client_override(self, client: str, name: str) -> str | None:
        """Return a setting of a client, the connector's own or the worker's."""
        own = self.connector.get(f"{client}.override.{name}")
        return own if own is not None else self.worker.given.get(f"{client}.{name}")

    def converter(self, name: str) -> Converter:
        """Return the converter ``key.converter``, ``value.converter`` or ``header.converter``, configured.

        A connector's own converter takes its settings from the connector alone.
        """
        own = self.connector.get(name)
        source: Mapping[str, Any] = self.connector if own is not None else self.worker.given
        plugin = self.plugins.find(own or self.worker.plugin_settings.converter(name))
        configured: Converter = plugin.make()
        configured.configure(behind_prefix(source, f"{name}."), _ROLES[name])
        return configured

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs:
            log.close()

    def _client_overrides(self, client: str) -> dict[str, str]:
        prefix = f"{client}.override."
        own = {n: v for n, v in self.connector.items() if n.startswith(prefix) and v is not None}
        return known_client_settings({f"{client}.{name.removeprefix(prefix)}": value for name, value in own.items()})
