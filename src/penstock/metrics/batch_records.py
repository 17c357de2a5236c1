"""What each batch has done and where its time went: the last ones, for pages and terminals."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from penstock.metrics.lag import PartitionLag

__all__ = ["BatchHistory", "BatchRecord", "busy_seconds", "skew_of", "times_the_median"]

_KEPT = 600
_SMALL_S = 0.05  # tasks shorter than this are never skewed: their differences are noise
_LEAST_MEDIAN_S = 0.005  # that a task is compared with: a ratio to less than this says nothing


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One micro-batch, or what stream threads have done in about a second.

    Attributes:
        number: The batch's number; of stream threads, the number of the look.
        ended_ms: When it ended, in milliseconds since 1970.
        seconds: How long it took on the driver; of stream threads, how long they were busy.
        records_in: Records read from source topics.
        records_out: Records written to sink topics.
        dropped: Records that were dropped.
        steps: Step -> seconds, summed over the tasks.
        slowest: Step -> seconds of the task that took longest for it.
        skew: The time of the slowest task over that of the median one, see `skew_of`.
        drops: (node, reason) -> dropped records, as far as operators say why.
        lags: The lag of each partition after the batch, against the ends of the last look.
        tasks: For each task that ran: ``task``, ``seconds`` by step, ``began_ms``, ``records_in``, ``records_out``,
            ``dropped``, ``records`` (of internal topics too), ``rows`` of its stores, ``host``; of stream threads
            ``thread``, and ``busy_s``, the seconds of the task's own processing.
        lost: ``<topic>-<partition>`` -> offsets that retention removed before they were read.
        segment_bytes: Bytes of state segments written.
        waiting: Records that waited in all partitions; -1 while unknown.
    """

    number: int
    ended_ms: int
    seconds: float
    records_in: int
    records_out: int
    dropped: int
    steps: Mapping[str, float] = field(default_factory=dict)
    slowest: Mapping[str, float] = field(default_factory=dict)
    skew: float = 1.0
    drops: Mapping[tuple[str, str], int] = field(default_factory=dict)
    lags: tuple[PartitionLag, ...] = ()
    tasks: tuple[Mapping[str, Any], ...] = ()
    lost: Mapping[str, int] = field(default_factory=dict)
    segment_bytes: int = 0
    waiting: int = -1

    def document(self) -> dict[str, Any]:
        """Return it for JSON; ``lag`` holds the records and the seconds of the partition that is furthest behind."""
        ages = [lag.seconds for lag in self.lags if lag.seconds is not None]
        return {
            "number": self.number,
            "ended_ms": self.ended_ms,
            "seconds": round(self.seconds, 4),
            "records_in": self.records_in,
            "records_out": self.records_out,
            "dropped": self.dropped,
            "steps": {step: round(time, 4) for step, time in self.steps.items()},
            "slowest": {step: round(time, 4) for step, time in self.slowest.items()},
            "skew": round(self.skew, 3),
            "drops": [{"node": node, "reason": why, "records": count} for (node, why), count in self.drops.items()],
            "lag": {"records": sum(lag.records for lag in self.lags), "seconds": max(ages, default=None)},
            "partitions": [lag.document() for lag in self.lags],
            "tasks": [dict(task) for task in self.tasks],
            "lost": dict(self.lost),
            "segment_bytes": self.segment_bytes,
        }


class BatchHistory:
    """The last 600 batches; safe to read while batches are added.

    Attributes:
        earlier: The last batches of the run before, as the checkpoint has them: without tasks, drops and partitions.

    >>> history = BatchHistory()
    >>> for number in range(3):
    ...     history.add(BatchRecord(number, 0, 0.5, 10, 10, 0))
    >>> [batch.number for batch in history.after(0)], history.newest.records_in
    ([1, 2], 10)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: deque[BatchRecord] = deque(maxlen=_KEPT)
        self.earlier: tuple[BatchRecord, ...] = ()

    def whole(self) -> list[BatchRecord]:
        """Return the last batches of this run and of the one before, the oldest first."""
        return [*self.earlier, *self][-_KEPT:]

    def add(self, batch: BatchRecord) -> None:
        """Add a batch; the oldest one is forgotten."""
        with self._lock:
            self._batches.append(batch)

    @property
    def newest(self) -> BatchRecord | None:
        """The newest batch; None before the first."""
        with self._lock:
            return self._batches[-1] if self._batches else None

    def after(self, number: int) -> list[BatchRecord]:
        """Return the batches above this number, the oldest first."""
        with self._lock:
            return [batch for batch in self._batches if batch.number > number]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[BatchRecord]:
        with self._lock:
            return iter(list(self._batches))


def busy_seconds(task: Mapping[str, Any]) -> float:
    """Return the seconds for which a task was at work.

    Args:
        task: Its report: ``seconds`` by step, of which waiting (``poll``) does not count; of stream threads ``busy_s``,
            the seconds of the task's own processing.

    >>> busy_seconds({"seconds": {"poll": 9.0, "process": 1.0}}), busy_seconds({"busy_s": 0.5, "seconds": {}})
    (1.0, 0.5)
    """
    busy = task.get("busy_s")
    if busy is None:
        busy = sum(time for step, time in task.get("seconds", {}).items() if step != "poll")
    return float(busy)


def times_the_median(seconds: Sequence[float]) -> list[float]:
    """Return how many times the median each time is; 1 where the times are too short to differ.

    >>> times_the_median([1.0, 1.0, 4.0]), times_the_median([0.0, 0.0, 0.01])
    ([1.0, 1.0, 4.0], [1.0, 1.0, 1.0])
    """
    if not seconds or max(seconds) < _SMALL_S:
        return [1.0] * len(seconds)
    usual = max(median(seconds), _LEAST_MEDIAN_S)
    return [each / usual for each in seconds]


def skew_of(tasks: Iterable[Mapping[str, Any]]) -> float:
    """Return how many times longer the slowest task of a batch took than the median one of its sub-topology.

    Args:
        tasks: The reports of the tasks, as `busy_seconds` reads them.

    Returns:
        The largest ratio of the sub-topologies; 1 if a task has no other beside it, or all are too short to differ.

    >>> skew_of([{"task": f"0_{n}", "seconds": {"process": s}} for n, s in enumerate((1.0, 1.0, 4.0))])
    4.0
    >>> skew_of([{"task": f"0_{n}", "seconds": {"process": s}} for n, s in enumerate((0.001, 0.001, 0.02))])
    1.0
    """
    times: dict[str, list[float]] = {}
    for task in tasks:
        if busy := busy_seconds(task):
            times.setdefault(task["task"].partition("_")[0], []).append(busy)
    return max((max(times_the_median(each)) for each in times.values() if len(each) > 1), default=1.0)
