"""The record of a batch that pages and terminals show, made of the batch's progress."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.engines.spark.progress import counted_by
from penstock.metrics.batches import BatchRecord, skew_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engines.spark.progress import BatchProgress
    from penstock.metrics.lag import PartitionLag

__all__ = ["batch_record"]


def batch_record(progress: BatchProgress, ended_ms: int, lags: tuple[PartitionLag, ...]) -> BatchRecord:
    """Make the record of a batch.

    Args:
        progress: The reports of its tasks.
        ended_ms: When it ended.
        lags: How far the application is behind, as of the last look; it may be older than the batch.
    """
    lags = _after(progress, lags)
    steps: dict[str, float] = defaultdict(float)
    slowest: dict[str, float] = defaultdict(float)
    drops: dict[tuple[str, str], int] = defaultdict(int)
    for task in progress.tasks:
        seconds: Mapping[str, float] = task.get("seconds", {})
        for step, time in seconds.items():
            steps[step] += time
            slowest[step] = max(slowest[step], time)
        for counts in counted_by(task):
            for node, why, count in counts.get("reasons", ()):
                drops[node, why] += count
    return BatchRecord(
        progress.batch,
        ended_ms,
        progress.seconds,
        progress.records_in,
        progress.records_out,
        progress.dropped,
        dict(steps),
        dict(slowest),
        skew_of(progress.tasks),
        dict(drops),
        lags,
        tuple(_shown(task) for task in progress.tasks),
        dict(progress.lost),
        progress.segment_bytes,
        _waiting(progress, lags),
    )


def _after(progress: BatchProgress, lags: tuple[PartitionLag, ...]) -> tuple[PartitionLag, ...]:
    """Return lags with the positions to which the batch has moved."""
    positions: dict[str, int] = {}
    for task in progress.tasks:
        positions |= task.get("ends", {})
    return tuple(_moved(lag, positions.get(f"{lag.topic}-{lag.partition}", lag.position)) for lag in lags)


def _moved(lag: PartitionLag, position: int) -> PartitionLag:
    if position <= lag.position:
        return lag
    seconds = None if position < lag.end else 0.0
    return replace(lag, position=position, end=max(position, lag.end), seconds=seconds)


def _waiting(progress: BatchProgress, lags: tuple[PartitionLag, ...]) -> int:
    """Return how many records wait: as of the batch, or else of the last look; -1 before the first."""
    if progress.lag:
        return sum(progress.lag.values())
    return sum(lag.records for lag in lags) if lags else -1


def _shown(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of a task's report."""
    shown: dict[str, Any] = {
        "task": task["task"],
        "records_in": task.get("records_read", 0),
        "records_out": task.get("records_written", 0),
        "dropped": task.get("dropped", 0),
        "seconds": {step: round(time, 4) for step, time in task.get("seconds", {}).items()},
        "records": task.get("records_in", task.get("records_read", 0)),
        "rows": sum(task.get("entries", {}).values()),
        "host": (task.get("replica") or [task.get("thread", "")])[0],
    }
    return shown | {
        name: task[name] for name in ("began_ms", "level", "thread", "busy_s", "recovered", "restored") if name in task
    }
