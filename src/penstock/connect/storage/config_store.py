"""The config topic: connectors, tasks, target states, requests to restart; in Kafka Connect's own format."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any

from penstock.base.clock import unix_ms
from penstock.connect.storage.topic_table import Table, TableChange

__all__ = ["ConfigStore", "ConnectorTaskId", "RestartRequest", "TargetState"]

ConnectorTaskId = tuple[str, int]
"""A connector's name and the number of the task."""

STARTED, PAUSED, STOPPED = "STARTED", "PAUSED", "STOPPED"
TargetState = str
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """A request to restart a connector with its tasks.

    Attributes:
        connector: Its name.
        only_failed: Leave those alone that run.
        include_tasks: Restart its tasks too.
    """

    connector: str
    only_failed: bool
    include_tasks: bool

    @property
    def connector_only(self) -> bool:
        """Whether it is the plain restart of the connector itself."""
        return not (self.only_failed or self.include_tasks)


@dataclass(slots=True)
class ConfigState:
    """The contents of the config topic. It does not change any more once it is a store's state: others replace it.

    Attributes:
        connectors: Config by connector.
        revisions: By connector, a number that grows with each record of its config.
        targets: Target state by connector: STARTED, PAUSED or STOPPED.
        tasks: Config by task, as last committed.
        counts: Number of tasks by connector.
        versions: By connector, a number that grows with each commit of its tasks.
        applied: The connector's config of which its tasks were made.
        fencing: Number of tasks by connector for which zombies were fenced last.
        session_key: The key that signs internal requests.
    """

    connectors: dict[str, dict[str, str | None]] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    targets: dict[str, TargetState] = field(default_factory=dict)
    tasks: dict[ConnectorTaskId, dict[str, str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    applied: dict[str, dict[str, str | None]] = field(default_factory=dict)
    fencing: dict[str, int] = field(default_factory=dict)
    session_key: bytes | None = None
    session_since_ms: int = 0

    def copied(self) -> ConfigState:
        """Return a state of its own with the same contents; the configs in it are never changed, only replaced."""
        state = copy(self)
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, dict):
                setattr(state, each.name, dict(value))
        return state

    def task_configs(self, connector: str) -> list[dict[str, str]]:
        """Return the configs of a connector's tasks, in order; none if a commit is incomplete."""
        count = self.counts.get(connector, 0)
        configs = [self.tasks.get((connector, number)) for number in range(count)]
        return [config for config in configs if config is not None] if None not in configs else []

    def task_ids(self, connector: str) -> list[ConnectorTaskId]:
        """Return the tasks of a connector."""
        return [(connector, number) for number in range(len(self.task_configs(connector)))]

    def target(self, connector: str) -> TargetState:
        """Return the target state of a connector."""
        return self.targets.get(connector, STARTED)


class ConfigStore:
    """The config topic as a state and as the operations that write it.

    One thread at a time reads the topic and writes to it; any thread may look at the state meanwhile.

    Attributes:
        state: What has been read so far: a snapshot, in whose place the next one comes.
        restarts: The requests to restart that nobody has taken yet.
        levels: The levels of loggers that nobody has taken yet.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.state = ConfigState()
        self._pending: dict[ConnectorTaskId, dict[str, str]] = {}
        self.restarts: list[RestartRequest] = []
        self.levels: list[tuple[str, str]] = []
        self._read_once = False

    def refresh(self) -> None:
        """Read what was written since the last time; requests to restart of before the first time are old."""
        self._take(self._table.refresh())

    def _take(self, changes: Sequence[TableChange]) -> None:
        if changes:
            state = self.state.copied()
            try:
                for change in changes:
                    self._apply(state, change.key.decode("utf-8", "replace"), _document(change.value))
            finally:
                self.state = state
        if not self._read_once:
            self._read_once = True
            self.restarts.clear()
            self.levels.clear()

    def close(self) -> None:
        """Close the topic."""
        self._table.close()

    # Writing

    def put_connector(self, name: str, config: Mapping[str, str | None], target: TargetState | None = None) -> None:
        """Store a connector's config, and a target state to begin with."""
        changes = [] if target is None else [_target(name, target)]
        self._put([*changes, _change(f"connector-{name}", {"properties": dict(config)})])

    def remove_connector(self, name: str) -> None:
        """Delete a connector."""
        self._put([_change(f"connector-{name}", None), _change(f"target-state-{name}", None)])

    def put_tasks(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Store the configs of all tasks of a connector, in place of those before."""
        tasks = [_change(f"task-{name}-{n}", {"properties": dict(config)}) for n, config in enumerate(configs)]
        self._put([*tasks, _change(f"commit-{name}", {"tasks": len(configs)})])

    def put_target(self, name: str, target: TargetState) -> None:
        """Store the target state of a connector."""
        self._put_freely([_target(name, target)])

    def put_fencing(self, name: str, tasks: int) -> None:
        """Note that zombies of so many tasks are fenced."""
        self._put([_change(f"tasks-fencing-{name}", {"task-count": tasks})])

    def put_restart(self, request: RestartRequest) -> None:
        """Ask all workers to restart their parts of a connector."""
        document = {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
        self._put([_change(f"restart-connector-{request.connector}", document)])

    def put_logger(self, name: str, level: str) -> None:
        """Set the level of a logger for all workers."""
        self._put_freely([_change(f"logger-cluster-{name}", {"level": level})])

    def renew_session_key(self) -> None:
        """Make a new key for internal requests."""
        key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
        now = unix_ms()
        self._put([_change("session-key", {"key": key, "algorithm": "HmacSHA256", "creation-timestamp": now})])

    def lead(self) -> None:
        """Begin to write as the leader; earlier leaders write no more."""
        self._table.lead()
        self._take(self._table.catch_up())

    @property
    def leading(self) -> bool:
        """Whether this worker has begun to lead, and no other one is known to have done so since."""
        return self._table.leading

    def _put(self, changes: Sequence[TableChange]) -> None:
        self._table.put_as_leader(changes)
        self._take(self._table.catch_up())  # what was written shows at once

    def _put_freely(self, changes: Sequence[TableChange]) -> None:
        self._table.put(changes)
        self.refresh()

    # Reading

    def _apply(self, state: ConfigState, key: str, document: Any) -> None:
        for prefix, apply in self._readers():
            if key.startswith(prefix):
                apply(state, key.removeprefix(prefix), document)
                return
        if key == "session-key" and isinstance(document, dict):
            state.session_key = base64.b64decode(document.get("key", ""))
            state.session_since_ms = int(document.get("creation-timestamp", 0))

    def _readers(self) -> tuple[tuple[str, Any], ...]:
        return (
            ("target-state-", self._read_target),
            ("connector-", self._read_connector),
            ("task-", self._read_task),
            ("commit-", self._read_commit),
            ("tasks-fencing-", self._read_fencing),
            ("restart-connector-", self._read_restart),
            ("logger-cluster-", self._read_logger),
        )

    def _read_connector(self, state: ConfigState, name: str, document: Any) -> None:
        if not isinstance(document, dict):
            state.connectors.pop(name, None)
            state.counts.pop(name, None)
            state.applied.pop(name, None)
            state.versions[name] = state.versions.get(name, 0) + 1
            for task in [task for task in state.tasks if task[0] == name]:
                del state.tasks[task]
            return
        state.connectors[name] = dict(document.get("properties") or {})
        state.revisions[name] = state.revisions.get(name, 0) + 1

    def _read_target(self, state: ConfigState, name: str, document: Any) -> None:
        if not isinstance(document, dict):
            state.targets.pop(name, None)
            return
        state.targets[name] = document.get("state.v2") or document.get("state") or STARTED

    def _read_task(self, state: ConfigState, key: str, document: Any) -> None:  # noqa: ARG002 - until the commit
        name, _, number = key.rpartition("-")
        if number.isdecimal() and isinstance(document, dict):
            self._pending[name, int(number)] = dict(document.get("properties") or {})

    def _read_commit(self, state: ConfigState, name: str, document: Any) -> None:
        if not isinstance(document, dict):
            return
        count = int(document.get("tasks", 0))
        for task in [task for task in self._pending if task[0] == name]:
            state.tasks[task] = self._pending.pop(task)
        if name not in state.connectors:
            return  # the commit of a connector that was deleted since
        state.counts[name] = count
        state.versions[name] = state.versions.get(name, 0) + 1
        state.applied[name] = dict(state.connectors[name])

    def _read_fencing(self, state: ConfigState, name: str, document: Any) -> None:
        if isinstance(document, dict):
            state.fencing[name] = int(document.get("task-count", 0))
        else:
            state.fencing.pop(name, None)

    def _read_restart(self, state: ConfigState, name: str, document: Any) -> None:  # noqa: ARG002 - a request
        if isinstance(document, dict):
            only_failed, tasks = bool(document.get("only-failed")), bool(document.get("include-tasks"))
            self.restarts.append(RestartRequest(name, only_failed, tasks))

    def _read_logger(self, state: ConfigState, name: str, document: Any) -> None:  # noqa: ARG002 - a request
        if isinstance(document, dict) and isinstance(document.get("level"), str):
            self.levels.append((name, document["level"]))


def _target(name: str, target: TargetState) -> TableChange:
    older = PAUSED if target == STOPPED else target  # workers before 3.5 know no STOPPED
    return _change(f"target-state-{name}", {"state": older, "state.v2": target})


def _change(key: str, document: Any) -> TableChange:
    value = None if document is None else json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return TableChange(key.encode(), value)


def _document(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return json.loads(value)
    except ValueError:
        return None
