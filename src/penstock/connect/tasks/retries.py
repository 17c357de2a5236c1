"""What a task tries again: the worker counts it, and the log names it once."""

from __future__ import annotations

from penstock.base.log_lines import own_logger
from penstock.connect.storage.config_store import ConnectorTaskId
from penstock.connect.tasks.parts import TaskLink

__all__ = ["Repeated"]

_log = own_logger(__name__)


class Repeated:
    """The errors of a task that may pass.

    Args:
        task: The task.
        link: Its worker.
    """

    def __init__(self, task: ConnectorTaskId, link: TaskLink) -> None:
        self._task, self._link = task, link
        self._last: str | None = None

    def note(self, error: Exception) -> None:
        """Note an error after which the task tries again."""
        text = str(error)
        self._link.count(0, text)
        if text != self._last:
            self._last = text
            _log.warning("task %s-%d tries again: %s", *self._task, text)

    def passed(self) -> None:
        """Note that it has succeeded."""
        if self._last is not None:
            self._last = None
            _log.warning("task %s-%d continues", *self._task)
