"""The lines of the log about dropped records: one a second for each reason, with the number since the last one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from penstock.base.terminal.words import counted

__all__ = ["DropLines"]

_EVERY_S = 1.0
_Reason = tuple[str, str]  # the operator, and why
_Place = tuple[str, int, int]  # topic, partition, offset


class DropLines:
    """Collects the drops of a task, and logs them.

    The first drop of a reason is logged at once. Where records come one by one, each would have a line of its own.

    Args:
        task_id: The task.
        log: The logger.
        clock: Returns the time in seconds.
    """

    def __init__(self, task_id: str, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._task_id = task_id
        self._log = log
        self._clock = clock
        self._logged_s: dict[_Reason, float] = {}
        self._waiting: dict[_Reason, tuple[int, str, _Place | None]] = {}

    def add(self, reason: _Reason, count: int, said: str, place: _Place | None) -> None:
        """Note drops: their number, the text of the reason, and where the newest comes from."""
        before, _, last = self._waiting.get(reason, (0, "", None))
        self._waiting[reason] = (before + count, said, place or last)

    def write(self, *, closing: bool = False) -> None:
        """Log the reasons whose last line is a second old; when the task is closed, all."""
        if not self._waiting:
            return
        now = self._clock()
        due = [one for one in self._waiting if closing or now - self._logged_s.get(one, -_EVERY_S) >= _EVERY_S]
        for reason in due:
            count, said, place = self._waiting.pop(reason)
            self._logged_s[reason] = now
            where = "" if place is None else f", the newest at {place[0]}-{place[1]} offset {place[2]}"
            self._log.warning(
                "task %s: %s dropped %s: %s%s", self._task_id, reason[0], counted(count, "record"), said, where
            )
