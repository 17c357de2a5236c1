"""Writing of a task's outputs into the log: one transaction with the ledger entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engines.threads.loop.commit import RefusedRecords, by_partition
from penstock.errors import ProductionError

if TYPE_CHECKING:
    from penstock.engines.batches.worker.task_batch import TaskBatch
    from penstock.engines.spark.job import SparkJob
    from penstock.log.base import TopicLog
    from penstock.log.thread_clients import Part
    from penstock.topology.plan.plan import TaskRun

__all__ = ["prepare_transactions", "write_outputs"]


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
