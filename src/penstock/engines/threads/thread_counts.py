"""What the tasks of a stream thread have counted since its start, for reports to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.log.client_counts import ClientCounts, counted
from penstock.runtime.counting import CountingSensor

if TYPE_CHECKING:
    from penstock.metrics.task_counts import TaskCounts

__all__ = ["ThreadCounts"]


class ThreadCounts:
    """Counts by task, which only grow, so that a lost report loses nothing.

    The smallest and largest values are those since the last report that was sent.

    Args:
        level: The recording level.

    Attributes:
        sensor: The sensor of the thread's tasks.
    """

    def __init__(self, level: str) -> None:
        self.sensor = CountingSensor.at_level(level)
        self._totals: dict[str, TaskCounts] = {}
        self._clients = ClientCounts()
        self._was_sent = False

    def clients(self) -> list[list[Any]]:
        """Return what the thread's clients have done since its start, for JSON."""
        self._clients.merge(counted().take())
        return self._clients.shown()

    def note(self) -> Mapping[str, Any]:
        """Return the counts of each task for JSON; to be called by the thread that runs the tasks."""
        if self._was_sent:
            self._was_sent = False
            for counts in self._totals.values():
                counts.forget_extremes()
            self._clients.forget_extremes()
        for task, counts in self.sensor.take().items():
            if task in self._totals:
                self._totals[task].merge(counts)
            else:
                self._totals[task] = counts
        return {task: counts.document() for task, counts in self._totals.items()}

    def sent(self) -> None:
        """Note that the newest counts are on their way; from any thread."""
        self._was_sent = True
