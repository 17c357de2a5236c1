"""Reports and errors of the inspection and rebuilding of tasks."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engines.micro_batches.recovery.changelog_rows import Restored
from penstock.errors import CheckpointMismatchError, StateError
from penstock.state.changelog.base import TaskNumbers
from penstock.state.segments.chain import Chain
from penstock.topology.plan.internal_topics import numbers_topic

if TYPE_CHECKING:
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.plan.stored import StoredPlan

__all__ = ["TaskInspection", "TaskReport", "lost_rows", "no_numbers", "rebuilt", "require_unmoved"]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of rebuilding a task.

    Attributes:
        task: The task.
        outcome: "sound" (nothing was missing), "rebuilt", "empty" (it has never written anything), or in a dry run
            "would be rebuilt".
        gap: The missing part.
        batch: The newest batch in the task's state.
        records: The number of changelog records that were read.
        rows: The number of restored rows by store.
        without_changelog: Stores that cannot be restored: they begin empty, or were taken out and cannot be put back.
        size_bytes: The size of the snapshot.
        seconds: The time that it took.
    """

    task: str
    outcome: str
    gap: str | None
    batch: int
    records: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    without_changelog: tuple[str, ...] = ()
    size_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskInspection:
    """The existing segments and numbers of a task.

    Attributes:
        task: The task.
        stores: Its stores.
        chain: Its segments.
        gap: The missing part of them.
        numbers: The task's numbers beside its changelogs; None if there are none.
    """

    task: str
    stores: tuple[str, ...]
    chain: Chain
    gap: str | None
    numbers: TaskNumbers | None


def rebuilt(report: TaskReport, restored: Restored, size_bytes: int, started: float) -> TaskReport:
    """Complete the report of a task that was to be rebuilt.

    Args:
        report: The report of the dry run.
        restored: The restored stores.
        size_bytes: The size of the snapshot.
        started: The begin, by ``time.perf_counter``.
    """
    rows = {store: table.num_rows for store, table in restored.stores.items()}
    seconds = time.perf_counter() - started
    return replace(
        report, outcome="rebuilt", records=restored.records, rows=rows, size_bytes=size_bytes, seconds=seconds
    )


def lost_rows(task: str, batch: int, topics: Collection[str]) -> StateError:
    """Make the error for a task whose rows for other tasks were only in a lost segment."""
    return StateError(
        f"task {task} has written batch {batch}, which was not finished when the application ended; its records for "
        f"{', '.join(topics)} were in a segment that is lost",
        hint="Bring the segment back from a backup, or continue without those records: --accept-loss.",
        task=task,
        batch=batch,
    )


def no_numbers(task: str, gap: str, application: str) -> CheckpointMismatchError:
    """Make the error for a task without numbers, so the batch of its changelogs is unknown."""
    return CheckpointMismatchError(
        f"task {task} cannot be rebuilt: {gap}, and {numbers_topic(application)} has no record of it",
        hint="Changelogs were off (penstock.changelog.enabled). Bring the segments back from a backup.",
        task=task,
    )


def require_unmoved(stored: StoredPlan, plan: PhysicalPlan, checkpoint: str) -> None:
    """Raise CheckpointMismatchError if the plan has stores in another sub-topology than they were written in."""
    moving = stored.moving({sub.id: sub.stores for sub in plan.subtopologies})
    if moving:
        names = ", ".join(sorted(name for stores in moving.values() for name in stores))
        raise CheckpointMismatchError(
            f"{names} have come into another sub-topology with this version of the topology, which has not run yet",
            hint="Rebuild the state with the version that ran last; a start of this one then copies the stores.",
            checkpoint=checkpoint,
        )
