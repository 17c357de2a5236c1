"""Attempts at processing a batch by column, which are taken back where a record fails.

What a record that fails has done by then, and what it leaves undone, is a matter of its operator: a join has sent some
matches, an aggregation has changed some of its windows, and a record that waits in a buffer is tried again with the
next one. Depth first all that is as in Kafka. By column the other records of the batch are in the midst of it. So
where the processing handler may leave records out, nothing stays of an attempt in which one has failed. The batch is
cut there, and its parts are processed one after the other, the records that failed depth first. Rows at which an
operator does nothing but leave them out need none of that. Handlers are asked when it is known what stays, so once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime import error_reports
from penstock.runtime.sensor import HeldEvents
from penstock.state.journal import Journal

if TYPE_CHECKING:
    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.runtime.sinks import Collector

__all__ = ["Attempts", "parts_between", "rows_between"]

Sources = list[tuple[str, "Rows"]]


class Attempts:
    """Takes back what a task does by column, if a record has failed.

    Args:
        context: The task.
        collector: Its outputs.
    """

    def __init__(self, context: TaskContext, collector: Collector) -> None:
        self._context = context
        self._collector = collector
        self._journal = Journal()
        self._events = HeldEvents(context.sensor)

    def failures(self, process: Callable[[], None]) -> set[int] | None:
        """Process; return None, or the positions of input records that failed, when all has been taken back.

        Where nobody knows which record it was, there are none.
        """
        context, events = self._context, self._events
        for where, count in error_reports.take().items():
            events.sensor.on_reported(context.task_id, where, count)
        written = self._collector.written()
        before = context.begin_attempt(self._journal)
        context.sensor = events
        try:
            process()
        except BaseException:
            self._journal.end()
            events.release()
            raise
        finally:
            context.sensor = events.sensor
            failed = context.end_attempt()
        if failed is None:
            self._journal.end()
            events.release()
            self._ask(written)
            return None
        self._journal.take_back()
        context.go_back(before)
        self._collector.go_back(written)
        events.forget()
        error_reports.take()
        return failed

    def _ask(self, written: Mapping[str, int]) -> None:
        """Ask the handlers about what was left out; an error lets no outputs stay that come behind its record."""
        try:
            self._context.ask_all()
        except BaseException:
            self._collector.go_back(written)
            raise


def rows_between(sources: Sources, first: int, last: int) -> Sources:
    """Return the rows of the records at the positions from ``first`` to before ``last``."""
    parts: Sources = []
    for source, rows in sources:
        inputs = rows.place.inputs
        start, stop = np.searchsorted(inputs, (first, last)).tolist()
        if stop > start:
            parts.append((source, rows if stop - start == len(rows) else rows.take(np.arange(start, stop))))
    return parts


def parts_between(first: int, last: int, failed: set[int]) -> list[tuple[int, int]]:
    """Cut the positions from ``first`` to before ``last`` into those that failed, and the parts between them.

    >>> parts_between(0, 10, {3, 9})
    [(0, 3), (3, 4), (4, 9), (9, 10)]
    >>> parts_between(0, 10, set())
    [(0, 5), (5, 10)]
    """
    cuts = sorted({first, last, *failed, *(position + 1 for position in failed)})
    if len(cuts) == 2:
        cuts.insert(1, first + (last - first) // 2)
    return list(pairwise(cuts))
