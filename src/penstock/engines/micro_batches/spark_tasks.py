"""Division of a stage's work into Spark tasks: by size in the first stage, by the slots of a shuffle in the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from penstock.engines.micro_batches.planned_batch import BatchFacts, inputs_checksum
from penstock.topology.plan.plan import TaskRun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.engines.offsets.offsets import SourceOffset
    from penstock.engines.spark.job import SparkJob
    from penstock.log.base import TopicPartition

__all__ = ["Bin", "cut_into_bins", "parse_run_name", "run_name", "shuffle_width", "slot_of", "slots_of"]


@dataclass(frozen=True, slots=True)
class TopicRange:
    """A range of offsets of one topic partition, for one task run of some stage.

    ``is_gone``: Whether the topic was deleted since the range was planned.
    """

    level: int
    run: TaskRun
    topic: str
    partition: int
    start: int
    end: int
    is_gone: bool = False


class Bin(InputPartition):
    """The work of one Spark task: offset ranges for task runs, and task runs that only check the clock."""

    def __init__(self) -> None:
        super().__init__(None)
        self.ranges: list[TopicRange] = []
        self.ticks: list[tuple[int, TaskRun]] = []
        self.weight = 0
        self.facts = BatchFacts()
        self.lost: Mapping[TopicPartition, int] = {}
        self.sends_facts = False


def cut_into_bins(
    job: SparkJob, before: SourceOffset, end: SourceOffset, recreated: frozenset[str] = frozenset()
) -> list[Bin]:
    """Divide the work of the batch from ``before`` to ``end`` into bins.

    Args:
        job: The application.
        before: The end of the batch before.
        end: The end of this batch.
        recreated: Topics that were deleted and created again since the batch was planned: their ranges are gone.
    """
    starts = {**before.ends, **end.starts}
    work: dict[TaskRun, list[TopicRange]] = {}
    later: list[TopicRange] = []
    for tp, stop in end.ends.items():
        first = starts.get(tp, 0)
        for sub in job.plan.readers(tp.topic) if stop > first else ():
            level = job.plan.entry_level(sub)
            piece = TopicRange(
                level, TaskRun(sub.id, tp.partition), tp.topic, tp.partition, first, stop, tp.topic in recreated
            )
            (work.setdefault(piece.run, []) if level == 0 else later).append(piece)
    ticking: list[tuple[int, TaskRun]] = []
    if end.tick > before.tick:
        ticking = [(s.levels[0], TaskRun(s.id, p)) for s in job.plan.subtopologies if s.ticks for p in range(s.tasks)]
    bins = _filled(work, later, ticking, job.parallelism)
    if end.lost and not bins:
        bins = [Bin()]
    tables = {topic for topic in job.plan.global_topics if topic not in recreated}
    inputs = inputs_checksum(before, end, job.plan.global_topics)
    facts = BatchFacts(inputs, {tp: at for tp, at in end.ends.items() if tp.topic in tables})
    for number, each in enumerate(bins):
        each.facts = facts
        each.sends_facts = number == 0
        each.lost = end.lost if number == 0 else {}
    return bins


def _filled(
    work: Mapping[TaskRun, list[TopicRange]],
    later: list[TopicRange],
    ticking: list[tuple[int, TaskRun]],
    parallelism: int,
) -> list[Bin]:
    """Fill as many bins as can run at once with tasks: the largest first, each into the bin with the least work."""
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


def shuffle_width(job: SparkJob, level: int) -> int:
    """Return the number of Spark tasks of a stage."""
    return max(1, min(job.parallelism, job.plan.run_count(level)))


def slot_of(job: SparkJob, level: int, run: TaskRun) -> int:
    """Return the Spark task of a stage that runs a task; tasks are dealt out in the order of `PhysicalPlan.runs`."""
    return (job.plan.first_run(level, run.subtopology) + run.partition) % shuffle_width(job, level)


def slots_of(job: SparkJob, level: int, subtopology: int, partitions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the slots of several tasks of one sub-topology, as `slot_of` does."""
    return (job.plan.first_run(level, subtopology) + partitions) % shuffle_width(job, level)


def run_name(run: TaskRun) -> str:
    """Format a task run as text; `parse_run_name` reads it."""
    return f"{run.subtopology}_{run.partition}_{run.phase}"


def parse_run_name(name: str) -> TaskRun:
    """Parse the name of a task run."""
    return TaskRun(*map(int, name.split("_")))
