"""The work of one task in one batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.engines.batches.envelope import Envelope, EnvelopeKind
from penstock.engines.batches.facts import BatchFacts
from penstock.engines.batches.slots import run_name
from penstock.engines.batches.stage_rows import ArrivedRows
from penstock.engines.spark import faults

if TYPE_CHECKING:
    from penstock.engines.spark.job import SparkJob
    from penstock.topology.plan.plan import PlannedSubTopology, TaskRun

__all__ = ["TaskBatch"]


@dataclass(frozen=True)
class TaskBatch:
    """One run of a task in a batch, with its input.

    Attributes:
        job: The application.
        level: The stage that the run belongs to.
        run: The task, and which of its runs in the batch.
        batch: Spark's batch number.
        inbox: The input: ranges of the log, rows of earlier stages, ticks of the clock.
        facts: The facts that all tasks of the batch share.
    """

    job: SparkJob
    level: int
    run: TaskRun
    batch: int
    inbox: Sequence[Envelope | ArrivedRows]
    facts: BatchFacts = field(default_factory=BatchFacts)

    @cached_property
    def sub(self) -> PlannedSubTopology:
        """The task's sub-topology."""
        return self.job.plan.subtopology(self.run.subtopology)

    @cached_property
    def number(self) -> int:
        """The number of the run among the task's segments and ledger entries."""
        return self.batch * len(self.sub.levels) + self.run.phase

    @cached_property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The first offset, and the one behind the last, by ``topic-partition``."""
        envelopes = [each for each in self.inbox if isinstance(each, Envelope) and each.kind is EnvelopeKind.RANGE]
        return {f"{each.topic}-{each.partition}": each.range for each in envelopes}

    def reach(self, step: int) -> None:
        """Note a step of the exactly-once protocol, at which a fault test may end the application."""
        faults.reach(step, self.batch, self.run.task_id, self.job.driver_pid)

    def report(self, facts: dict[str, Any]) -> Envelope:
        """Make the envelope with facts for the driver."""
        payload = json.dumps(facts).encode()
        return Envelope(-1, 0, EnvelopeKind.REPORT, run_name(self.run), "", -1, self.run.task_id, payload)
