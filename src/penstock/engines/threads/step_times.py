"""The time that a stream thread spends in each of its steps, and the step that it is in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["StepTimes"]


class StepTimes:
    """Seconds by step, counted by the thread; any other thread may ask what it is doing.

    Example:
        >>> times = StepTimes()
        >>> with times.step("process", "0_1"):
        ...     times.doing()["task"]
        '0_1'
        >>> times.doing() is None
        True
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._now: tuple[str, str, float] | None = None

    @contextmanager
    def step(self, name: str, task: str = "") -> Iterator[None]:
        """Count the time of a step.

        Args:
            name: The step.
            task: The task that it is for; empty: all.
        """
        started = time.perf_counter()
        self._now = name, task, started
        try:
            yield
        finally:
            self._now = None
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def doing(self) -> dict[str, Any] | None:
        """Return the step that the thread is in, its task, and for how many seconds; None between steps."""
        now = self._now
        if now is None:
            return None
        return {"step": now[0], "task": now[1], "seconds": round(time.perf_counter() - now[2], 1)}
