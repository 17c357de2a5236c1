"""What a task has for real topics, into the log: one transaction with its ledger entry."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import ProductionError
from penstock.log.base import HEADERS_TYPE
from penstock.runtime.handlers import ErrorContext, handler_of
from penstock.serde.partitioner import partition_for

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.plan.plan import TaskRun
    from penstock.runtime.handlers import DeadLetter
    from penstock.spark.job import SparkJob

__all__ = ["by_partition", "expect_outputs", "write_outputs"]

_log = logging.getLogger(__name__)
_Parts = list[tuple[str, int, pa.RecordBatch]]


def write_outputs(
    job: SparkJob,
    run: TaskRun,
    number: int,
    outputs: Mapping[str, pa.RecordBatch],
    logged: Sequence[tuple[str, pa.RecordBatch]],
    log: TopicLog,
    *,
    always: bool,
) -> None:
    """Writes outputs, changelogs and ledger entry in one transaction.

    Args:
        job: The application.
        run: The task.
        number: Of its batch, for the ledger.
        outputs: By topic; those for internal topics travel otherwise.
        logged: Changelog topics and records for the task's own partition.
        log: Where to.
        always: The ledger is all that tells that the batch is done, so there is an entry even without outputs.

    Raises:
        ProductionError: The log refuses a record for good, and so says production.exception.handler.
        FencedError: A newer attempt or instance has taken over.
    """
    parts = [
        (topic, max(partition, 0), part.drop_columns(["partition"]))
        for topic, rows in outputs.items()
        if topic not in job.plan.internal_topics
        for partition, part in by_partition(rows)
    ]
    parts += [(topic, run.partition, records) for topic, records in logged]
    if not parts and not (always and job.exactly_once):
        return
    while True:
        try:
            _write(job, run, number, parts, log)
        except ProductionError as error:
            parts = _without_refused(job, run, parts, error)
        else:
            return


def expect_outputs(job: SparkJob, runs: Iterable[TaskRun], log: TopicLog) -> None:
    """Says who of these tasks is going to write."""
    if job.exactly_once:
        internal = set(job.plan.internal_topics)
        subs = {sub.id for sub in job.plan.subtopologies if set(sub.sink_topics) - internal or not sub.sink_topics}
        log.expect_transactions([_writer(job, run) for run in runs if run.subtopology in subs], job.epoch)


def _task(run: TaskRun) -> str:
    # A batch that is run again begins with its first phase, when later ones may have been written.
    return run.task_id if run.phase == 0 else f"{run.task_id}/{run.phase}"


def _writer(job: SparkJob, run: TaskRun) -> str:
    return f"{job.plan.application_id}-{_task(run)}"


def _write(job: SparkJob, run: TaskRun, number: int, parts: _Parts, log: TopicLog) -> None:
    writer, epoch = (_writer(job, run), job.epoch) if job.exactly_once else ("", None)
    with log.transaction(writer, epoch) as transaction:
        for part in parts:
            transaction.append(*part)
        if job.exactly_once:
            transaction.put_ledger(job.plan.application_id, _task(run), number)


def by_partition(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows by their column ``partition``, in order."""
    if not rows.num_rows:
        return
    partitions = rows.column("partition").to_numpy()
    found = np.unique(partitions)
    if len(found) == 1:
        yield int(found[0]), rows
        return
    order = np.argsort(partitions, kind="stable")
    starts = np.searchsorted(partitions[order], found)
    for partition, start, end in zip(found, starts, [*starts[1:], len(order)], strict=True):
        yield int(partition), rows.take(pa.array(order[start:end]))


def _without_refused(job: SparkJob, run: TaskRun, parts: _Parts, error: ProductionError) -> _Parts:
    """What is left when the handler has seen each refused record, with the dead letters that it wants."""
    refused = error.facts.get("refused")
    if not isinstance(refused, dict) or not refused:
        raise error
    changelogs = {*job.changelogs.values(), job.numbers_topic}
    if any(parts[number][0] in changelogs for number in refused):
        raise error  # without its record a store could not be rebuilt
    name = "production.exception.handler"
    handle = handler_of(job.config[name], name, job.config.get("errors.dead.letter.queue.topic.name"))
    nodes = {sink.topic: sink.name for sink in job.topology.sinks}
    letters: list[DeadLetter] = []
    kept: _Parts = []
    for number, (topic, partition, rows) in enumerate(parts):
        out = refused.get(number, ())
        for row in out:
            record = rows.slice(row, 1).to_pylist()[0]
            headers = tuple((each["key"], each["value"]) for each in record.get("headers") or ())
            node = nodes.get(topic) or topic
            facts = ErrorContext(
                run.task_id, node, None, -1, -1, record["timestamp"], headers, record["key"], record["value"]
            )
            response = handle(facts, error)
            if response.action == "fail":
                raise error
            letters += response.dead_letters
        if out:
            _log.warning("%d record(s) for %s-%d are left out: %s", len(out), topic, partition, error.message)
        left = rows.take(pa.array(np.setdiff1d(np.arange(rows.num_rows), out))) if out else rows
        if left.num_rows:
            kept.append((topic, partition, left))
    return [*kept, *(_letter(job, letter) for letter in letters)]


def _letter(job: SparkJob, letter: DeadLetter) -> tuple[str, int, pa.RecordBatch]:
    count = job.plan.partitions.get(letter.topic, 1)
    headers = [[{"key": key, "value": value} for key, value in letter.headers]]
    columns = {
        "timestamp": pa.array([letter.timestamp], pa.int64()),
        "key": pa.array([letter.key], pa.large_binary()),
        "value": pa.array([letter.value], pa.large_binary()),
        "headers": pa.array(headers, HEADERS_TYPE),
    }
    partition = 0 if letter.key is None else partition_for(letter.key, count)
    return letter.topic, partition, pa.RecordBatch.from_pydict(columns)
