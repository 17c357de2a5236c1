"""The work of one task in one batch, and the writing of its outputs: one transaction with the ledger entry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
from penstock.engines.micro_batches.planned_batch import BatchFacts
from penstock.engines.micro_batches.spark_tasks import run_name
from penstock.engines.micro_batches.stage_rows import ArrivedRows
from penstock.engines.spark import fault_injection
from penstock.engines.threads.loop.commit import RefusedRecords, by_partition
from penstock.errors import ProductionError

if TYPE_CHECKING:
    from penstock.engines.spark.job import SparkJob
    from penstock.log.base import TopicLog
    from penstock.log.thread_clients import Part
    from penstock.topology.plan.plan import PlannedSubTopology, TaskRun

__all__ = ["TaskBatch", "prepare_transactions", "write_outputs"]


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
        fault_injection.reach(step, self.batch, self.run.task_id, self.job.driver_pid)

    def report(self, facts: dict[str, Any]) -> Envelope:
        """Make the envelope with facts for the driver."""
        payload = json.dumps(facts).encode()
        return Envelope(-1, 0, EnvelopeKind.REPORT, run_name(self.run), "", -1, self.run.task_id, payload)


def write_outputs(
    work: TaskBatch,
    outputs: Mapping[str, pa.RecordBatch],
    changes: Sequence[tuple[str, pa.RecordBatch]],
    log: TopicLog,
    *,
    always: bool,
) -> None:
    """Write outputs, changelog records and ledger entry in one transaction.

    Args:
        work: The task and its batch.
        outputs: The output records by topic; those for internal topics are left out.
        changes: Changelog topics, each with records for the task's own partition.
        log: The application's log.
        always: Whether a ledger entry is written even without outputs: nothing else says that the batch is done.

    Raises:
        ProductionError: The log refuses a record for good, and production.exception.handler answers with failure.
        FencedError: A newer attempt or instance has taken over.
    """
    job = work.job
    parts = [
        (topic, max(partition, 0), part)
        for topic, rows in outputs.items()
        if topic not in job.plan.internal_topics
        for partition, part in by_partition(rows)
    ]
    parts += [(topic, work.run.partition, records) for topic, records in changes]
    if not parts and not (always and job.exactly_once):
        return
    while True:
        try:
            _write(work, parts, log)
        except ProductionError as error:
            changelogs = {*job.changelogs.values(), job.numbers_topic}
            refused = RefusedRecords(job.topology, job.config, job.plan, changelogs)
            parts, _ = refused.without(parts, [work.run.task_id] * len(parts), error)
        else:
            return


def prepare_transactions(job: SparkJob, runs: Iterable[TaskRun], log: TopicLog) -> None:
    """Announce to the log which of these tasks will write, so that it can set up their transactions early."""
    if job.exactly_once:
        internal = set(job.plan.internal_topics)
        subs = {sub.id for sub in job.plan.subtopologies if set(sub.sink_topics) - internal or not sub.sink_topics}
        log.prepare_transactions([_writer(job, run) for run in runs if run.subtopology in subs], job.epoch)


def _ledger_task(run: TaskRun) -> str:
    # A batch that is run again begins with its first phase, when later ones may have been written.
    return run.task_id if run.phase == 0 else f"{run.task_id}/{run.phase}"


def _writer(job: SparkJob, run: TaskRun) -> str:
    return f"{job.plan.application_id}-{_ledger_task(run)}"


def _write(work: TaskBatch, parts: Sequence[Part], log: TopicLog) -> None:
    job, run = work.job, work.run
    writer, epoch = (_writer(job, run), job.epoch) if job.exactly_once else ("", None)
    with log.transaction(writer, epoch) as transaction:
        for part in parts:
            transaction.append(*part)
        if job.exactly_once:
            transaction.put_ledger(job.plan.application_id, _ledger_task(run), work.number, work.facts.inputs)
