"""A stage inside a Python worker: its tasks, one after the other.

Heavy imports stand in functions, so they happen only after PySpark's daemon has forked the worker.
"""

from __future__ import annotations

import gc
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind, decode, encode_all
from penstock.engines.micro_batches.planned_batch import BatchFacts
from penstock.engines.micro_batches.spark_tasks import parse_run_name, run_name, shuffle_width, slot_of
from penstock.engines.micro_batches.stage_rows import Outbox, rows_by_task
from penstock.engines.spark.failures import to_worker_error
from penstock.engines.spark.job import load_job
from penstock.engines.spark.worker_process import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.micro_batches.spark_tasks import Bin
    from penstock.engines.micro_batches.stage_rows import ArrivedRows
    from penstock.engines.spark.job import SparkJob
    from penstock.topology.plan.plan import TaskRun

__all__ = ["run_first_stage", "run_stage"]


def run_first_stage(data: bytes, work: Bin) -> Iterator[pa.RecordBatch]:
    """Run the tasks of a bin, which read their ranges from the log; pass on ranges and ticks of later stages."""
    prepare_worker()
    job = load_job(data)
    inbox: dict[TaskRun, list[Envelope | ArrivedRows]] = defaultdict(list)
    passed: list[Envelope] = []
    for piece in work.ranges:
        envelope = Envelope(
            piece.level,
            slot_of(job, piece.level, piece.run),
            EnvelopeKind.RANGE,
            run_name(piece.run),
            piece.topic,
            piece.partition,
            "",
            json.dumps([piece.start, piece.end, *([True] if piece.is_gone else [])]).encode(),
        )
        if piece.level == 0:
            inbox[piece.run].append(envelope)
        else:
            passed.append(envelope)
    for level, run in work.ticks:
        tick = Envelope(level, slot_of(job, level, run), EnvelopeKind.TICK, run_name(run), "", -1, "", b"")
        if level == 0:
            inbox[run].append(tick)
        else:
            passed.append(tick)
    if work.sends_facts:
        passed += _facts_for_later_stages(job, work.facts)
    if work.lost:
        lost = {f"{tp.topic}-{tp.partition}": count for tp, count in work.lost.items()}
        passed.append(Envelope(-1, 0, EnvelopeKind.REPORT, "", "", -1, "", json.dumps({"lost": lost}).encode()))
    if passed:
        yield from encode_all(passed)
    yield from _run_all(job, 0, inbox, work.facts)


def _facts_for_later_stages(job: SparkJob, facts: BatchFacts) -> Iterator[Envelope]:
    """Make envelopes with the facts of the batch for every worker of the later stages."""
    payload = facts.pack()
    for level in range(1, job.plan.levels):
        for slot in range(shuffle_width(job, level)):
            yield Envelope(level, slot, EnvelopeKind.FACTS, "", "", -1, "", payload)


def run_stage(data: bytes, level: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the tasks whose envelopes came to this worker; pass on envelopes of later stages."""
    prepare_worker()
    job = load_job(data)
    inbox: dict[TaskRun, list[Envelope | ArrivedRows]] = defaultdict(list)
    handed: list[Envelope] = []
    facts = BatchFacts()
    for envelope in decode(batches, level):
        if not isinstance(envelope, Envelope):
            yield envelope
        elif envelope.kind is EnvelopeKind.FACTS:
            facts = BatchFacts.unpack(bytes(envelope.payload))
        elif envelope.kind is EnvelopeKind.RECORDS:
            handed.append(envelope)
        else:
            inbox[parse_run_name(envelope.run)].append(envelope)
    for run, rows in rows_by_task(handed):
        inbox[run].append(rows)
    del handed  # the tasks' input is a copy
    yield from _run_all(job, level, inbox, facts)


def _run_all(
    job: SparkJob,
    level: int,
    inbox: Mapping[TaskRun, Sequence[Envelope | ArrivedRows]],
    facts: BatchFacts,
) -> Iterator[pa.RecordBatch]:
    if not inbox:
        return
    from pyspark import TaskContext

    from penstock.engines.micro_batches.worker.task_attempt import log_of, run_task
    from penstock.engines.micro_batches.worker.task_batch import TaskBatch, prepare_transactions

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark sets it in workers
    batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
    if job.app_digest not in _frozen:
        prepare_transactions(job, sorted(inbox), log_of(job))
    outbox = Outbox(job)
    reports: list[Envelope] = []
    for run in sorted(inbox):
        try:
            handed, report = run_task(TaskBatch(job, level, run, batch, inbox[run], facts))
        except Exception as error:  # noqa: BLE001 - sent to the driver, whatever it is
            raise to_worker_error(error, job.error_key) from None
        reports.append(report)
        yield from encode_all(outbox.add(handed))
    yield from encode_all([*outbox.rest(), *reports])
    if job.app_digest not in _frozen:
        _frozen.add(job.app_digest)
        _freeze()


_frozen: set[str] = set()  # the programs that have run in this process


def _freeze() -> None:
    """Exclude all objects that are loaded by now from garbage collection.

    PySpark collects garbage after every Spark task, and visiting the modules of Polars, Arrow and pandas takes longer
    than a small batch.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
