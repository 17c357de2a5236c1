"""What runs inside a Python worker: the tasks of one stage, one after the other.

Heavy imports happen here, in functions, so only after PySpark's daemon has forked the worker.
"""

from __future__ import annotations

import gc
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.spark.envelope import Envelope, Kind, decode, encode_all
from penstock.spark.failures import wrapped
from penstock.spark.job import load_job
from penstock.spark.worker_process import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log.base import TopicPartition
    from penstock.plan.plan import TaskRun
    from penstock.spark.bins import Bin
    from penstock.spark.job import SparkJob

__all__ = ["run_first_stage", "run_stage", "slot_of"]


def run_first_stage(data: bytes, work: Bin) -> Iterator[pa.RecordBatch]:
    """The tasks of a bin: reads their ranges from the log; ranges and ticks of later stages are passed on."""
    prepare_worker()
    job = load_job(data)
    inbox: dict[TaskRun, list[Envelope]] = defaultdict(list)
    passed: list[Envelope] = []
    for piece in work.ranges:
        envelope = Envelope(
            piece.level,
            slot_of(job, piece.level, piece.run),
            Kind.RANGE,
            run_name(piece.run),
            piece.topic,
            piece.partition,
            "",
            f"[{piece.start}, {piece.end}]".encode(),
        )
        if piece.level == 0:
            inbox[piece.run].append(envelope)
        else:
            passed.append(envelope)
    for level, run in work.ticks:
        tick = Envelope(level, slot_of(job, level, run), Kind.TICK, run_name(run), "", -1, "", b"")
        if level == 0:
            inbox[run].append(tick)
        else:
            passed.append(tick)
    if work.tells_later_stages:
        passed += _told(job, work.global_ends)
    if work.lost:
        lost = {f"{tp.topic}-{tp.partition}": count for tp, count in work.lost.items()}
        passed.append(Envelope(-1, 0, Kind.REPORT, "", "", -1, "", json.dumps({"lost": lost}).encode()))
    if passed:
        yield from encode_all(passed)
    yield from _run_all(job, 0, inbox, work.global_ends)


def _told(job: SparkJob, ends: Mapping[TopicPartition, int]) -> Iterator[Envelope]:
    """Where the global tables stand in this batch, for every worker of the later stages."""
    if not ends:
        return
    payload = json.dumps([[tp.topic, tp.partition, end] for tp, end in ends.items()]).encode()
    for level in range(1, job.plan.levels):
        for slot in range(shuffle_width(job, level)):
            yield Envelope(level, slot, Kind.GLOBALS, "", "", -1, "", payload)


def run_stage(data: bytes, level: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The tasks whose envelopes came to this worker; envelopes of later stages are passed on."""
    prepare_worker()
    job = load_job(data)
    inbox: dict[TaskRun, list[Envelope]] = defaultdict(list)
    passed: list[Envelope] = []
    global_ends: Mapping[TopicPartition, int] = {}
    for envelope in decode(batches):
        if envelope.level == level and envelope.kind is Kind.GLOBALS:
            global_ends = envelope.ends
        elif envelope.level == level:
            inbox[run_of(envelope.run)].append(envelope)
        else:
            passed.append(envelope)
    if passed:
        yield from encode_all(passed)
    yield from _run_all(job, level, inbox, global_ends)


def _run_all(
    job: SparkJob, level: int, inbox: dict[TaskRun, list[Envelope]], global_ends: Mapping[TopicPartition, int]
) -> Iterator[pa.RecordBatch]:
    if not inbox:
        return
    from pyspark import TaskContext

    from penstock.spark.exactly_once import expect, run_task

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark sets it in workers
    batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
    if job.program_id not in _settled:
        expect(job, sorted(inbox))
    for run in sorted(inbox):
        try:
            envelopes = run_task(job, level, run, batch, inbox[run], global_ends)
        except Exception as error:  # noqa: BLE001 - told to the driver, whatever it is
            raise wrapped(error) from None
        yield from encode_all(envelopes)
    if job.program_id not in _settled:
        _settled.add(job.program_id)
        _settle()


_settled: set[str] = set()  # the programs that have run in this process


def _settle() -> None:
    """Takes what is loaded by now out of the sight of the garbage collector.

    PySpark collects garbage after every Spark task, and going through the modules of Polars, Arrow and pandas each time
    takes longer than a small batch does.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def slot_of(job: SparkJob, level: int, run: TaskRun) -> int:
    """Where a task run goes in its stage's shuffle."""
    return job.plan.runs(level).index(run) % shuffle_width(job, level)


def shuffle_width(job: SparkJob, level: int) -> int:
    """How many Spark tasks a stage has."""
    return max(1, min(job.parallelism, len(job.plan.runs(level))))


def run_name(run: TaskRun) -> str:
    """A task run as text."""
    return f"{run.subtopology}_{run.partition}_{run.phase}"


def run_of(name: str) -> TaskRun:
    """A task run from its text."""
    from penstock.plan.plan import TaskRun

    return TaskRun(*map(int, name.split("_")))
