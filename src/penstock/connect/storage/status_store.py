"""The status topic: the states of connectors and tasks, and the topics that they use; in Kafka Connect's own format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.base.clock import unix_ms
from penstock.connect.data.stored_offsets import compact_json
from penstock.connect.storage.config_store import ConnectorTaskId
from penstock.connect.storage.topic_table import Table, TableChange
from penstock.errors import FencedError

__all__ = ["StatusStore", "StoredStatus"]


@dataclass(frozen=True, slots=True)
class StoredStatus:
    """The state of a connector or task.

    Attributes:
        state: RUNNING, PAUSED, FAILED, UNASSIGNED, RESTARTING or STOPPED.
        worker: The worker that has it, ``host:port``.
        generation: The generation of the group in which it was written.
        version: The version of the plugin.
        trace: The stack trace of a failure.
    """

    state: str
    worker: str
    generation: int = 0
    version: str | None = None
    trace: str | None = None

    def described(self) -> dict[str, Any]:
        """Return the state as the REST interface answers it."""
        body: dict[str, Any] = {"state": self.state, "worker_id": self.worker, "version": self.version}
        return body if self.trace is None else {**body, "trace": self.trace}


class StatusStore:
    """The status topic as a state and as the operations that write it.

    One thread at a time reads the topic and writes to it; any thread may look at the states meanwhile.

    Attributes:
        connectors: State by connector: like the two below a snapshot, in whose place the next one comes.
        tasks: State by task.
        topics: By connector, the topics that it uses.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.connectors: dict[str, StoredStatus] = {}
        self.tasks: dict[ConnectorTaskId, StoredStatus] = {}
        self.topics: dict[str, dict[str, Any]] = {}
        self._unwritten: dict[ConnectorTaskId, StoredStatus | None] = {}

    def refresh(self) -> None:
        """Read what was written since the last time."""
        changes = self._table.refresh()
        if not changes:
            return
        connectors, tasks = dict(self.connectors), dict(self.tasks)
        topics = {connector: dict(used) for connector, used in self.topics.items()}
        try:
            for change in changes:
                document = None if change.value is None else _parsed(change.value)
                _apply(connectors, tasks, topics, change.key.decode("utf-8", "replace"), document)
        finally:
            self.connectors, self.tasks, self.topics = connectors, tasks, topics

    def close(self) -> None:
        """Close the topic."""
        self._table.close()

    def put_connector(self, name: str, status: StoredStatus | None) -> None:
        """Store the state of a connector; None deletes it."""
        self._put([TableChange(f"status-connector-{name}".encode(), _written(status))])

    def put_tasks(self, statuses: Iterable[tuple[ConnectorTaskId, StoredStatus | None]]) -> None:
        """Store the states of tasks; None deletes one.

        While they cannot be written they are known here all the same; the next call writes them too.
        """
        tasks = dict(self.tasks)
        for task, status in statuses:
            self._unwritten[task] = status
            _set(tasks, task, status)
        self.tasks = tasks
        unwritten = self._unwritten.items()
        try:
            self._put(
                [TableChange(f"status-task-{name}-{n}".encode(), _written(status)) for (name, n), status in unwritten]
            )
        except FencedError:  # another worker writes them
            self._unwritten.clear()
            raise
        self._unwritten.clear()

    def put_topic(self, topic: str, task: ConnectorTaskId) -> None:
        """Store that a task uses a topic, if it is not known yet."""
        if topic in self.topics.get(task[0], {}):
            return
        now = unix_ms()
        document = {"topic": {"name": topic, "connector": task[0], "task": task[1], "discoverTimestamp": now}}
        self._put([TableChange(_topic_key(topic, task[0]), compact_json(document))])

    def forget_topics(self, connector: str) -> None:
        """Delete the topics of a connector."""
        self._put([TableChange(_topic_key(topic, connector), None) for topic in self.topics.get(connector, {})])

    def forget(self, connector: str) -> None:
        """Delete all states and topics of a connector."""
        tasks = [task for task in self.tasks if task[0] == connector]
        self.put_tasks((task, None) for task in tasks)
        if connector in self.connectors:
            self.put_connector(connector, None)
        self.forget_topics(connector)

    def tasks_of(self, connector: str) -> dict[int, StoredStatus]:
        """Return the states of a connector's tasks, by number."""
        return {number: status for (name, number), status in sorted(self.tasks.items()) if name == connector}

    def _put(self, changes: list[TableChange]) -> None:
        if changes:
            self._table.put(changes)
            self.refresh()


def _apply(
    connectors: dict[str, StoredStatus],
    tasks: dict[ConnectorTaskId, StoredStatus],
    topics: dict[str, dict[str, Any]],
    key: str,
    document: Any,
) -> None:
    if key.startswith("status-connector-"):
        _set(connectors, key.removeprefix("status-connector-"), _read(document))
    elif key.startswith("status-task-"):
        name, _, number = key.removeprefix("status-task-").rpartition("-")
        if number.isdecimal():
            _set(tasks, (name, int(number)), _read(document))
    elif key.startswith("status-topic-"):
        topic, _, connector = key.removeprefix("status-topic-").partition(":connector-")
        _set(topics.setdefault(connector, {}), topic, document and document.get("topic"))


def _topic_key(topic: str, connector: str) -> bytes:
    return f"status-topic-{topic}:connector-{connector}".encode()


def _set(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _written(status: StoredStatus | None) -> bytes | None:
    if status is None:
        return None
    return compact_json(
        {
            "state": status.state,
            "trace": status.trace,
            "worker_id": status.worker,
            "generation": status.generation,
            "version": status.version,
        }
    )


def _read(document: Any) -> StoredStatus | None:
    if not isinstance(document, dict) or "state" not in document:
        return None
    return StoredStatus(
        str(document["state"]),
        str(document.get("worker_id")),
        int(document.get("generation") or 0),
        document.get("version"),
        document.get("trace"),
    )


def _parsed(value: bytes) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return None
