"""The figures of a stream thread, for reports to the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.log.base import TopicPartition
from penstock.log.client_counts import ClientCounts, counted
from penstock.runtime.sensor import CountingSensor

if TYPE_CHECKING:
    from penstock.engines.threads.loop.task import ActiveTask
    from penstock.metrics.task_counts import TaskCounts

__all__ = ["StepTimes", "TaskFigures", "ThreadCounts", "ThreadFigures"]


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The figures of one task since the start of its thread.

    Attributes:
        task: The task's id, such as ``0_1``.
        records_in: The number of records that it has processed.
        records_out: The number of records that it has written.
        records_read: The number of records that it has processed from topics that are not internal.
        records_written: The number of records that it has written to topics that are not internal.
        dropped: Kafka's ``dropped-records-total``.
        stream_time_ms: The largest timestamp that it has seen; -1 before the first record.
        buffered: The number of records that are fetched and not yet processed.
        entries: The rows of each of its stores as of the last commit.
        store_bytes: The bytes on disk of each of its stores as of the last commit.
    """

    task: str
    records_in: int
    records_out: int
    records_read: int
    records_written: int
    dropped: int
    stream_time_ms: int
    buffered: int
    entries: Mapping[str, int] = field(default_factory=dict)
    store_bytes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, task: ActiveTask) -> TaskFigures:
        """Return the present figures of a task."""
        return cls(
            str(task.id),
            task.records_in,
            task.records_out,
            task.records_read,
            task.records_written,
            task.dropped_records,
            task.stream_time_ms,
            task.buffers.records,
            task.replica.entries(),
            task.replica.store_bytes(),
        )

    def document(self) -> dict[str, Any]:
        """Return the figures for JSON; without `dataclasses.asdict`, which copies for many times as long."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ThreadFigures:
    """The figures of a thread since its start.

    Attributes:
        tasks: Those of its tasks.
        positions: The offset of the next record to process, by partition.
        committed: The committed offsets, by partition.
        ends: The ends of the partitions, as far as they are known.
        buffered_bytes: The size of the records that are fetched and not yet processed.
        pending_bytes: The size of the output that waits for the next commit.
        commits: The number of commits.
        seconds: The time spent, by step of the loop: poll, process, send, commit, replicas.
        began_ms: The wall-clock time since when it fetches.
        committed_ms: The wall-clock time of the last commit; 0 before the first.
        global_sizes: Rows and bytes of the global stores, see `penstock.runtime.global_stores.GlobalViews.sizes`.
    """

    tasks: tuple[TaskFigures, ...]
    positions: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    buffered_bytes: int
    pending_bytes: int
    commits: int
    seconds: Mapping[str, float]
    began_ms: int = 0
    committed_ms: int = 0
    global_sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


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


class ThreadCounts:
    """Counts by task that only grow, so that a lost report loses nothing.

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
