"""The work of a batch, cut into Spark tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from penstock.plan.plan import TaskRun

if TYPE_CHECKING:
    from penstock.log.base import TopicPartition
    from penstock.spark.job import SparkJob
    from penstock.spark.offsets import SourceOffset

__all__ = ["Bin", "TopicRange", "bins_of"]


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
        self.lost: Mapping[TopicPartition, int] = {}
        self.tells_later_stages = False


def bins_of(job: SparkJob, before: SourceOffset, end: SourceOffset) -> list[Bin]:
    """The batch that ends at ``end``, after one that has ended at ``before``."""
    starts = {**before.ends, **end.starts}
    work: dict[TaskRun, list[TopicRange]] = {}
    later: list[TopicRange] = []
    for tp, stop in end.ends.items():
        first = starts.get(tp, 0)
        for sub in job.plan.readers(tp.topic) if stop > first else ():
            level = job.plan.entry_level(sub)
            piece = TopicRange(level, TaskRun(sub.id, tp.partition), tp.topic, tp.partition, first, stop)
            (work.setdefault(piece.run, []) if level == 0 else later).append(piece)
    ticking: list[tuple[int, TaskRun]] = []
    if end.tick > before.tick:
        ticking = [(s.levels[0], TaskRun(s.id, p)) for s in job.plan.subtopologies if s.ticks for p in range(s.tasks)]
    bins = _filled(work, later, ticking, job.parallelism)
    if end.lost and not bins:
        bins = [Bin()]
    for number, each in enumerate(bins):
        each.global_ends = {tp: at for tp, at in end.ends.items() if tp.topic in job.plan.global_topics}
        each.tells_later_stages = number == 0
        each.lost = end.lost if number == 0 else {}
    return bins


def _filled(
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
