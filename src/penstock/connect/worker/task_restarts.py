"""Failed tasks that start again by themselves: the connector's setting ``restart.policy``."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Self

from penstock.base.backoff import Backoff
from penstock.connect.data import SettingError
from penstock.connect.plugins.connector_definition import FOREVER, RESTARTS
from penstock.connect.storage.config_store import ConnectorTaskId

__all__ = ["RestartPolicy", "TaskRestarts"]

_BACKOFF = Backoff(1.0, 60.0)


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The rule that says when a failed task starts again.

    Attributes:
        restarts: Failed tasks start again (``restart.policy=on-failure``); else they stay FAILED, as in Kafka Connect.
        attempts: How often in a row (``restart.max.attempts``); -1: for ever.
        backoff: The waits before restarts (``restart.delay.ms``, ``restart.delay.max.ms``). A task that runs longer
            than the longest has recovered.

    Example:
        >>> RestartPolicy.of({"restart.policy": "on-failure", "restart.delay.ms": "500"}).backoff.pause_s(3)
        2.0
    """

    restarts: bool = False
    attempts: int = FOREVER
    backoff: Backoff = _BACKOFF

    @classmethod
    def of(cls, config: Mapping[str, str | None]) -> Self:
        """Read the settings of a connector's config.

        Raises:
            SettingError: One is wrong.
        """
        settings = {name: value for name, value in config.items() if value is not None}
        settings["restart.policy"] = settings.get("restart.policy") or "none"
        parsed = RESTARTS.parse(settings)
        return cls(
            parsed["restart.policy"].lower() != "none",
            parsed["restart.max.attempts"],
            Backoff(parsed["restart.delay.ms"] / 1000, parsed["restart.delay.max.ms"] / 1000),
        )


@dataclass(slots=True)
class _History:
    attempts: int = 0
    running_since: float | None = None
    due: float | None = None


class TaskRestarts:
    """The tasks of a worker that are to start again.

    Args:
        now: The time in seconds, that only grows.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._tasks: dict[ConnectorTaskId, _History] = {}

    def note(self, task: ConnectorTaskId, state: str, config: Mapping[str, str | None]) -> None:
        """Note a state that a task has reported."""
        if state != "FAILED":
            if (restarts := self._tasks.get(task)) is not None:
                restarts.due = None  # somebody has restarted it meanwhile
                if state == "RUNNING":
                    restarts.running_since = self._now()
            return
        try:
            policy = RestartPolicy.of(config)
        except SettingError:
            return  # refused where configs are checked; a Java worker may have stored it
        if not policy.restarts:
            return
        history = self._tasks.setdefault(task, _History())
        since, history.running_since = history.running_since, None
        if since is not None and self._now() - since > policy.backoff.longest_s:
            history.attempts = 0
        if policy.attempts != FOREVER and history.attempts >= policy.attempts:
            return
        history.attempts += 1
        history.due = self._now() + policy.backoff.pause_s(history.attempts)

    def due(self, owned: Collection[ConnectorTaskId]) -> list[ConnectorTaskId]:
        """Return the tasks whose wait is over, of those that this worker has; others are forgotten."""
        if not self._tasks:
            return []
        now = self._now()
        self._tasks = {task: history for task, history in self._tasks.items() if task in owned}
        due_tasks = [task for task, history in self._tasks.items() if history.due is not None and history.due <= now]
        for task in due_tasks:
            self._tasks[task].due = None
        return due_tasks
