"""Lines of the log about dropped records: not more than one a second for each reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from penstock.base.terminal.human_numbers import counted

__all__ = ["DropLines"]

_DROPS_EVERY_S = 1.0
_DROPS_KEPT = 200  # reasons whose last line is remembered for the second
_Reason = tuple[object, ...]  # the operator, and why
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
        due = [
            one for one in self._waiting if closing or now - self._logged_s.get(one, -_DROPS_EVERY_S) >= _DROPS_EVERY_S
        ]
        for reason in due:
            count, said, newest = self._waiting.pop(reason)
            self._logged_s.pop(reason, None)
            self._logged_s[reason] = now
            where = "" if newest is None else f", the newest at {newest[0]}-{newest[1]} offset {newest[2]}"
            self._log.warning(
                "task %s: %s dropped %s: %s%s", self._task_id, reason[0], counted(count, "record"), said, where
            )
        while len(self._logged_s) > _DROPS_KEPT:
            del self._logged_s[next(iter(self._logged_s))]
