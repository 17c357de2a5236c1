"""The embedded log as a streaming source that plans a batch and runs its first stage.

Spark sees offsets and a few Spark partitions, each a bin of tasks. What is read inside a partition is not records but
the result of the first stage: tasks read the log themselves, so records never pass through the JVM.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.log.open import open_log
from penstock.spark.envelope import ENVELOPE_DDL
from penstock.spark.job import load_job
from penstock.spark.moves import moved_since
from penstock.spark.offsets import Offsets, admit, moves_from, offsets_from, offsets_to
from penstock.spark.timeline import Timeline

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.log.base import TopicPartition
    from penstock.log.embedded import EmbeddedLog
    from penstock.plan.plan import TaskRun

__all__ = ["Bin", "PenstockSource", "TopicRange"]

_WAIT_FOR_DATA_S = 0.1
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Offsets of one topic partition, for one task run of some stage."""

    level: int
    run: TaskRun
    topic: str
    partition: int
    start: int
    end: int


class Bin(InputPartition):
    """The work of one Spark task: ranges for task runs, and task runs that only look at the clock."""

    def __init__(self) -> None:
        super().__init__(None)
        self.ranges: list[TopicRange] = []
        self.ticks: list[tuple[int, TaskRun]] = []
        self.weight = 0
        self.global_ends: dict[TopicPartition, int] = {}
        self.tells_later_stages = False


class PenstockSource(DataSource):
    """``spark.readStream.format("penstock-tasks").option("job", base64)``."""

    @classmethod
    def name(cls) -> str:
        return "penstock-tasks"

    def schema(self) -> str:
        return ENVELOPE_DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        reader: type[DataSourceStreamReader] = _Reader
        return reader(base64.b64decode(self.options["job"]))  # type: ignore[call-arg]


@dataclass
class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver; `read` runs in the workers."""

    data: bytes
    _log: EmbeddedLog | None = None
    _target: Offsets | None = None
    _seen_version: int = field(default=-1)

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.data, "_log": None, "_target": None, "_seen_version": -1}

    @property
    def log(self) -> EmbeddedLog:
        if self._log is None:
            self._log = open_log(load_job(self.data).log_url)
        return self._log

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        job = load_job(self.data)
        topics = list(job.plan.external_topics)
        first, last = self.log.beginning_offsets(topics), self.log.end_offsets(topics)
        start = {tp: (last if job.offset_reset.get(tp.topic) == "latest" else first)[tp] for tp in first}
        start |= self.log.beginning_offsets(list(job.plan.global_topics))  # a global table is never read in part
        return offsets_to(start, 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(load_job(self.data).max_records_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.log.end_offsets(list(load_job(self.data).plan.all_topics))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        job = load_job(self.data)
        topics = list(job.plan.all_topics)
        version = self.log.version()
        begin, tick = offsets_from(start)
        moves, starts = moved_since(job.moves, moves_from(start)[0])
        begin |= starts
        ends = self.log.end_offsets(topics) if self._target is None else self._target
        if ends == begin and not starts and self._target is None and version == self._seen_version:
            self._seen_version = self.log.wait_for_data(version, _WAIT_FOR_DATA_S)
            ends = self.log.end_offsets(topics)
        else:
            self._seen_version = version
        if not isinstance(limit, ReadAllAvailable):
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else job.max_records_per_batch
            tables = {tp: end for tp, end in ends.items() if tp.topic in job.plan.global_topics}
            streams = {tp: end for tp, end in ends.items() if tp not in tables}
            ends = tables | admit(begin, streams, most, job.max_records_per_partition, self._timeline)
        if job.tick_ms and self._target is None:
            tick = max(tick, int(time.time() * 1000) // job.tick_ms)
        return offsets_to(ends, tick, moves=moves, starts=starts)

    def _timeline(self, tp: TopicPartition, start: int, end: int, most: int) -> Timeline:
        def times(first: int, following: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            parts = self.log.read_range(tp.topic, tp.partition, first, following)
            offsets, stamps = ([part.column(name).to_numpy() for part in parts] for name in ("offset", "timestamp"))
            return (np.concatenate(offsets), np.concatenate(stamps)) if parts else (_NONE, _NONE)

        return Timeline(start, self.log.stretches(tp.topic, tp.partition, start, end, most), times)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return offsets_to(self.log.end_offsets(list(load_job(self.data).plan.external_topics)), 0)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        job = load_job(self.data)
        before, old_tick = offsets_from(start)
        before |= moves_from(end)[1]
        after, tick = offsets_from(end)
        beginnings = self.log.beginning_offsets(list({tp.topic for tp in after} - {tp.topic for tp in before}) or [])
        work: dict[TaskRun, list[TopicRange]] = {}
        later: list[TopicRange] = []
        for tp, stop in after.items():
            first = before.get(tp, beginnings.get(tp, 0))
            for sub in job.plan.readers(tp.topic) if stop > first else ():
                level = job.plan.entry_level(sub)
                piece = TopicRange(level, _run(sub.id, tp.partition), tp.topic, tp.partition, first, stop)
                (work.setdefault(piece.run, []) if level == 0 else later).append(piece)
        ticking: list[tuple[int, TaskRun]] = []
        if tick > old_tick:
            ticking = [(s.levels[0], _run(s.id, p)) for s in job.plan.subtopologies if s.ticks for p in range(s.tasks)]
        bins = _bins(work, later, ticking, job.parallelism)
        for number, each in enumerate(bins):
            each.global_ends = {tp: end for tp, end in after.items() if tp.topic in job.plan.global_topics}
            each.tells_later_stages = number == 0
        return list(bins)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from penstock.spark.stage import run_first_stage

        assert isinstance(partition, Bin)  # noqa: S101 - made by partitions()
        return run_first_stage(self.data, partition)

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()


def _run(subtopology: int, partition: int) -> TaskRun:
    from penstock.plan.plan import TaskRun

    return TaskRun(subtopology, partition)


def _bins(
    work: Mapping[TaskRun, list[TopicRange]],
    later: list[TopicRange],
    ticking: list[tuple[int, TaskRun]],
    parallelism: int,
) -> list[Bin]:
    """Tasks into as many bins as can run at once, the largest first, each into the emptiest."""
    sizes = {run: sum(r.end - r.start for r in ranges) for run, ranges in work.items()}
    sizes |= {run: 1 for level, run in ticking if level == 0 and run not in sizes}
    bins = [Bin() for _ in range(max(1, min(parallelism, len(sizes)))) if sizes or later or ticking]
    ticks = {run for level, run in ticking if level == 0}
    for run in sorted(sizes, key=lambda r: (-sizes[r], r)):
        lightest = min(bins, key=lambda b: b.weight)
        lightest.weight += sizes[run]
        lightest.ranges += work.get(run, [])
        if run in ticks:
            lightest.ticks.append((0, run))
    if bins:
        bins[0].ranges += later
        bins[0].ticks += [(level, run) for level, run in ticking if level > 0]
    return bins
