"""Slots: the assignment of a stage's tasks to the Spark tasks of its shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.topology.plan.plan import TaskRun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.engines.spark.job import SparkJob

__all__ = ["run_name", "parse_run_name", "shuffle_width", "slot_of", "slots_of"]


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
