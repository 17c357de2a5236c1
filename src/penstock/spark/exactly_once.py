"""One task, one batch: find or process and publish the segment, write outputs with the ledger, hand on the rest.

Whatever step a crash hits, running the batch again gives the same: a published segment counts and nothing runs again;
outputs and the ledger entry are one transaction.
"""

from __future__ import annotations

import json
import socket
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.runtime.task import StreamTask
from penstock.spark import faults
from penstock.spark.arrivals import topic_batches
from penstock.spark.changelogs import changelog_records, noted_puts
from penstock.spark.envelope import Envelope, Kind, pack_records
from penstock.spark.global_stores import global_stores
from penstock.spark.kept import KeptTask, put_back, take
from penstock.spark.stage import run_name, slot_of
from penstock.spark.writing import by_partition, expect_outputs, write_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log.base import TopicLog, TopicPartition
    from penstock.plan.plan import PlannedSubTopology, TaskRun
    from penstock.runtime.task import TaskOutput
    from penstock.spark.job import SparkJob

__all__ = ["expect", "log_of", "run_task"]

Outputs = Mapping[str, pa.RecordBatch]
Logged = list[tuple[str, pa.RecordBatch]]  # changelog topic, records for the task's partition


@dataclass(slots=True)
class _Facts:
    """What a task tells the driver about its batch."""

    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def mark(self, step: str, since: float) -> float:
        now = time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - since
        return now


def run_task(
    job: SparkJob,
    level: int,
    run: TaskRun,
    batch: int,
    inbox: Sequence[Envelope],
    global_ends: Mapping[TopicPartition, int] | None = None,
) -> list[Envelope]:
    """Runs a task on its input of a batch, exactly once.

    Args:
        job: The application.
        level: The stage.
        run: The task, and which of its runs in this batch.
        batch: Spark's batch number.
        inbox: Its input: ranges of the log, rows of earlier stages, ticks of the clock.
        global_ends: Up to where global stores have read their topics in this batch; None: all that is there now.

    Returns:
        Rows for later stages, and a report for the driver.
    """
    sub = job.plan.subtopology(run.subtopology)
    number = batch * len(sub.levels) + run.phase
    facts = _Facts({"began_ms": int(time.time() * 1000)})
    faults.reach(0, batch, run.task_id, job.driver_pid)
    log = log_of(job)
    # Without state and internal rows the transaction alone is atomic: there is nothing that a segment could add.
    needs_segment = job.plan.publishes(sub)
    steps = _through_segment if needs_segment else _directly
    if job.plan.global_topics:
        facts.metrics["dropped_globally"] = global_stores(job, log).move_to(global_ends or None)
    outputs, logged = steps(job, sub, run, batch, number, inbox, log, facts)
    started = time.perf_counter()
    write_outputs(job, run, number, outputs, logged, log, always=not needs_segment)
    faults.reach(3, batch, run.task_id, job.driver_pid)
    facts.mark("write", started)
    envelopes = list(_handed_on(job, level, run, outputs))
    faults.reach(4, batch, run.task_id, job.driver_pid)
    facts.metrics |= {"task": run.task_id, "level": level, "seconds": facts.seconds}
    if sub.stores:
        facts.metrics["replica"] = [socket.gethostname(), number - 1]  # which this machine's replica holds by now
    facts.metrics["records_written"] = sum(
        rows.num_rows for topic, rows in outputs.items() if topic not in job.unseen_topics
    )
    facts.metrics["ends"] = {f"{e.topic}-{e.partition}": e.range[1] for e in inbox if e.kind is Kind.RANGE}
    report = Envelope(-1, 0, Kind.REPORT, run_name(run), "", -1, run.task_id, json.dumps(facts.metrics).encode())
    return [*envelopes, report]


def expect(job: SparkJob, runs: Iterable[TaskRun]) -> None:
    """Says which tasks run first in this process, so that what takes time for their outputs begins at once."""
    expect_outputs(job, runs, log_of(job))


def _directly(
    job: SparkJob,
    sub: PlannedSubTopology,
    run: TaskRun,
    batch: int,
    number: int,  # noqa: ARG001 - the same shape as _through_segment
    inbox: Sequence[Envelope],
    log: TopicLog,
    facts: _Facts,
) -> tuple[Outputs, Logged]:
    kept = take(job, run, (), keeps_state=False)
    try:
        kept.numbers.meta.clear()  # what such a task knows of earlier batches must not depend on who ran them
        output = _process(job, sub, run, batch, inbox, log, kept.numbers, kept, facts)
    except BaseException:
        kept.close()
        raise
    put_back(kept)
    faults.reach(1, batch, run.task_id, job.driver_pid)
    return output.records, []


def _through_segment(
    job: SparkJob,
    sub: PlannedSubTopology,
    run: TaskRun,
    batch: int,
    number: int,
    inbox: Sequence[Envelope],
    log: TopicLog,
    facts: _Facts,
) -> tuple[Outputs, Logged]:
    started = time.perf_counter()
    kept = take(job, run, sub.stores, keeps_state=True)
    store = kept.store
    assert store is not None  # noqa: S101 - keeps_state
    try:
        segment = store.find(number, discard_damaged=True)
        if segment is None:
            state = store.begin(number, expected_head=_written(job, sub, run, number, log) if kept.is_new else None)
            started = facts.mark("state", started)
            facts.metrics["entries"] = {name: len(state.map(name)) for name in sub.stores}
            output = _process(job, sub, run, batch, inbox, log, state, kept, facts)
            faults.reach(1, batch, run.task_id, job.driver_pid)
            started = time.perf_counter()
            offsets = {f"{e.topic}-{e.partition}": list(e.range) for e in inbox if e.kind is Kind.RANGE}
            if any(e.kind is Kind.RECORDS for e in inbox):
                offsets["batch"] = [batch, batch + 1]
            written = output.records | noted_puts(job, sub.stores, state, run.partition)
            segment = store.publish(number, written, offsets, discard_damaged=True)
            kept.ran(segment)
            facts.metrics["segment_bytes"] = segment.size_bytes
            facts.mark("publish", started)
        else:
            facts.metrics["recovered"] = 1
        faults.reach(2, batch, run.task_id, job.driver_pid)
        outputs = segment.outputs
        started = time.perf_counter()
        logged = changelog_records(job, run, segment)
        facts.mark("changelog", started)
    except BaseException:
        kept.close()
        raise
    put_back(kept)
    return outputs, logged


def _written(job: SparkJob, sub: PlannedSubTopology, run: TaskRun, number: int, log: TopicLog) -> int | None:
    """The newest batch before this one that the task has written, as the ledger has it: there is a segment of it."""
    if not job.exactly_once:
        return None
    ledger = log.ledger(job.plan.application_id)
    phases = (run.task_id, *(f"{run.task_id}/{phase}" for phase in range(1, len(sub.levels))))
    return max((ledger[task] for task in phases if ledger.get(task, number) < number), default=None)


def _process(
    job: SparkJob,
    sub: PlannedSubTopology,
    run: TaskRun,
    batch: int,
    inbox: Sequence[Envelope],
    log: TopicLog,
    state: Any,
    kept: KeptTask,
    facts: _Facts,
) -> TaskOutput:
    started = time.perf_counter()
    lost: dict[str, int] = {}
    records = topic_batches(inbox, log, batch, None if job.reading.loss_fails else lost)
    if lost:
        facts.metrics["lost"] = lost
    facts.metrics["records_read"] = sum(r.records.num_rows for r in records if r.topic not in job.plan.internal_topics)
    started = facts.mark("read", started)

    shared = global_stores(job, log).views if job.plan.global_topics else None

    def make() -> StreamTask:
        return StreamTask(
            job.topology,
            job.config,
            run.task_id,
            state,
            nodes=sub.nodes,
            partitions=job.plan.partitions,
            global_stores=shared,
        )

    task = kept.task(make, shared)
    output = task.process(records, int(time.time() * 1000), hold_punctuation=run.phase in sub.held)
    facts.mark("process", started)
    facts.metrics |= output.metrics
    facts.metrics["dropped"] += facts.metrics.pop("dropped_globally", 0)
    return output


def _handed_on(job: SparkJob, level: int, run: TaskRun, outputs: Outputs) -> Iterator[Envelope]:
    from penstock.plan.plan import TaskRun

    for topic, rows in outputs.items():
        if topic not in job.plan.internal_topics:
            continue
        for partition, part in by_partition(rows):
            payloads = pack_records(part.drop_columns(["partition"]))
            for reader in job.plan.readers(topic):
                to = job.plan.entry_level(reader, after=level)
                target = TaskRun(reader.id, partition, reader.levels.index(to))
                slot = slot_of(job, to, target)
                for piece, payload in enumerate(payloads):
                    origin = f"{run_name(run)}:{piece:06d}"
                    yield Envelope(to, slot, Kind.RECORDS, run_name(target), topic, partition, origin, payload)


_logs: OrderedDict[tuple[str, int, str], TopicLog] = OrderedDict()
_MOST_LOGS = 4  # applications


def log_of(job: SparkJob) -> TopicLog:
    """One handle a worker process and start of an application; workers never fork, so it is never shared."""
    key = (job.log_url, job.epoch, job.program_id)
    if key not in _logs:
        while len(_logs) >= _MOST_LOGS:
            _logs.popitem(last=False)[1].close()
        _logs[key] = job.open_log()
    return _logs[key]
