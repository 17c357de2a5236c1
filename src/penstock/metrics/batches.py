"""What each batch has done and where its time went: the last ones, for pages and terminals."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from penstock.metrics.lag import PartitionLag

__all__ = ["BatchHistory", "BatchRecord"]

_KEPT = 600


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
        skew: The time of the slowest task over that of the median one, in the sub-topology where that is largest; 1
            when all take the same time, or one task ran.
        drops: (node, reason) -> dropped records, as far as operators say why.
        lags: The lag of each partition, as of the last look.
        tasks: For each task that ran: ``task``, ``seconds`` by step, ``began_ms``, ``records_in``, ``records_out``,
            ``dropped``; of stream threads ``thread``.
        lost: ``<topic>-<partition>`` -> offsets that retention removed before they were read.
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
        }


class BatchHistory:
    """The last 600 batches; safe to read while batches are added.

    >>> history = BatchHistory()
    >>> for number in range(3):
    ...     history.add(BatchRecord(number, 0, 0.5, 10, 10, 0))
    >>> [batch.number for batch in history.after(0)], history.newest.records_in
    ([1, 2], 10)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: deque[BatchRecord] = deque(maxlen=_KEPT)

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


def skew_of(seconds: Mapping[str, Sequence[float]]) -> float:
    """Return the largest ratio of slowest and median task over sub-topologies (id -> seconds of its tasks).

    >>> skew_of({"0": [1.0, 1.0, 3.0], "1": [2.0]})
    3.0
    """
    ratios = [max(times) / middle for times in seconds.values() if (middle := median(times)) > 0]
    return max(ratios, default=1.0)
