"""One task, one batch: find or publish the segment, write the outputs with the ledger entry, hand rows on.

Whatever step a crash hits, running the batch again has the same result: a published segment counts and nothing is
processed again; outputs and ledger entry are one transaction.
"""

from __future__ import annotations

import socket
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.base.log_lines import Work, own_logger
from penstock.engines.global_store_copy import GlobalStores
from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
from penstock.engines.micro_batches.spark_tasks import run_name
from penstock.engines.micro_batches.stage_rows import ALL_PARTITIONS, ArrivedRows, HandedRows
from penstock.engines.micro_batches.worker.open_tasks import OpenTask, acquire_task, release_task
from penstock.engines.micro_batches.worker.task_batch import write_outputs
from penstock.engines.offsets.start_positions import lost_records_error
from penstock.engines.spark.crash_notes import CrashNotes
from penstock.errors import LogUnavailableError, OffsetOutOfRangeError
from penstock.log.base import RECORD_SCHEMA, TopicPartition
from penstock.log.client_counts import counted
from penstock.runtime.context import TaskEnvironment
from penstock.runtime.global_stores import GLOBAL_TASK
from penstock.runtime.rows import volumes_of_changes
from penstock.runtime.sensor import CountingSensor, SensorGroup
from penstock.runtime.task import StreamTask, TaskPart, TopicBatch
from penstock.state.changelog import records_of_changes, records_of_puts
from penstock.state.changelog.formats import TaskNumbers
from penstock.state.maps import NO_BATCH, count_calls, take_calls
from penstock.state.stored_bytes import stored_bytes
from penstock.topology.plan.plan import TaskRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.engines.micro_batches.worker.task_batch import TaskBatch
    from penstock.engines.spark.job import SparkJob
    from penstock.log.base import TopicLog
    from penstock.runtime.task import TaskOutput
    from penstock.state.maps import TaskOverlay
    from penstock.state.segments.segment import Segment
    from penstock.state.task_store import TaskStore

__all__ = [
    "changelog_records",
    "close_global_stores",
    "log_of",
    "noted_puts",
    "read_planned_range",
    "run_task",
    "topic_batches",
]

_log = own_logger(__name__)
Outputs = Mapping[str, pa.RecordBatch]
ChangelogRecords = list[tuple[str, pa.RecordBatch]]  # changelog topic, records for the task's partition
_OFFSETS_A_BATCH = 1 << 32


def run_task(work: TaskBatch) -> tuple[list[HandedRows], Envelope]:
    """Run a task on its input of a batch, exactly once.

    Returns:
        The rows for later stages, and a report for the driver.
    """
    with Work(application=work.job.plan.application_id, task=work.run.task_id, batch=work.batch):
        outcome = _Attempt(work).run()
        _log.debug("done: %s", outcome[1].payload.decode())
        return outcome


class _Attempt:
    """One attempt at a task's batch: its log, and the facts that it reports to the driver."""

    def __init__(self, work: TaskBatch) -> None:
        self._work = work
        self._job = work.job
        self._log = log_of(work.job)
        self._metrics: dict[str, Any] = {"began_ms": unix_ms()}
        self._seconds: dict[str, float] = {}
        self._counting = _counting(work.job.config["metrics.recording.level"])
        self._notes = _crash_notes(work.job.replica_root)
        self._counting.take()  # what a batch that failed has left

    def run(self) -> tuple[list[HandedRows], Envelope]:
        work = self._work
        self._notes.begin(work.run.task_id, work.batch, work.ranges, "opening its state")
        try:
            return self._run()
        finally:
            self._notes.end()

    def _run(self) -> tuple[list[HandedRows], Envelope]:
        work, job = self._work, self._job
        work.reach(0)
        # Without state and internal rows the transaction alone is atomic: there is nothing that a segment could add.
        needs_segment = job.plan.publishes(work.sub)
        if job.plan.global_topics:
            self._move_global_stores()
        outputs, changes = self._through_segment() if needs_segment else self._directly()
        self._notes.step("writing its outputs")
        started = time.perf_counter()
        write_outputs(work, outputs, changes, self._log, always=not needs_segment)
        work.reach(3)
        self._mark("write", started)
        handed = list(self._handed_on(outputs))
        work.reach(4)
        self._metrics |= {"task": work.run.task_id, "level": work.level, "seconds": self._seconds}
        if work.sub.stores:
            self._metrics["replica"] = [socket.gethostname(), work.number - 1]  # the batch that the replica holds now
        self._report_counts()
        self._metrics["clients"] = counted().take()
        self._metrics["records_written"] = sum(
            rows.num_rows for topic, rows in outputs.items() if topic not in job.unseen_topics
        )
        self._metrics["ends"] = {name: end for name, (_, end) in work.ranges.items()}
        return handed, work.report(self._metrics)

    def _move_global_stores(self) -> None:
        """Bring the machine's copy of the global stores to where the batch sees it, and report what it then has."""
        stores = global_stores(self._job, self._log)
        if stores.move_to(self._work.facts.global_ends or None, self._counting):
            self._metrics["global"] = stores.views.sizes()

    def _report_counts(self) -> None:
        """Report what the task has counted, and the task of the global stores if this batch has moved them."""
        counts_by_task = self._counting.take()
        if (counts := counts_by_task.get(self._work.run.task_id)) is not None:
            self._metrics["counts"] = counts.document()
        if (counts := counts_by_task.get(GLOBAL_TASK)) is not None:
            self._metrics["global"]["counts"] = counts.document()
            self._metrics["dropped"] = self._metrics.get("dropped", 0) + counts.dropped

    def _mark(self, step: str, since: float) -> float:
        """Add the time since then to a step's seconds; return the present time."""
        now = time.perf_counter()
        self._seconds[step] = self._seconds.get(step, 0.0) + now - since
        return now

    def _directly(self) -> tuple[Outputs, ChangelogRecords]:
        """Process the batch of a task that needs no segment."""
        task = acquire_task(self._job, self._work.run, (), keeps_state=False)
        try:
            task.numbers.meta.clear()  # such a task must not depend on batches that this process ran earlier
            output = self._process(task, task.numbers)
        except BaseException:
            task.close()
            raise
        release_task(task)
        self._work.reach(1)
        return output.records, []

    def _through_segment(self) -> tuple[Outputs, ChangelogRecords]:
        """Find the batch's published segment, or process the batch and publish one."""
        work, job = self._work, self._job
        started = time.perf_counter()
        task = acquire_task(job, work.run, work.sub.stores, keeps_state=True)
        store = task.store
        assert store is not None  # noqa: S101 - keeps_state
        try:
            segment = store.find(work.number, inputs=work.facts.inputs, discard_damaged=True)
            written = self._written_batches() if segment is None and task.is_new else []
            unsegmented = job.unsegmented.get(work.sub.id, NO_BATCH)
            if work.number in written and work.number <= unsegmented:  # by the topology that needed no segments
                release_task(task)
                return {}, []
            if segment is None:
                head = max((each for each in written if unsegmented < each < work.number), default=None)
                segment = self._publish(task, store, head, started)
            else:
                self._metrics["recovered"] = 1
            work.reach(2)
            outputs = segment.outputs
            started = time.perf_counter()
            changes = changelog_records(job, work.run, segment)
            self._mark("changelog", started)
        except BaseException:
            task.close()
            raise
        release_task(task)
        return outputs, changes

    def _publish(self, task: OpenTask, store: TaskStore, expected_head: int | None, started: float) -> Segment:
        """Process the batch and publish its segment; another attempt's segment counts if it was faster."""
        work = self._work
        state = store.begin(work.number, expected_head=expected_head)
        if self._counting.detailed:
            count_calls(state)
        self._mark("state", started)
        if store.caught_up is not None:
            self._metrics["restored"] = [store.caught_up.deltas, store.caught_up.delta_bytes]
            self._metrics["restored_rows"] = store.restored_rows
        if task.is_new:
            self._metrics["opened"] = 1
        self._metrics["entries"] = {name: len(state.map(name)) for name in work.sub.stores}
        self._metrics["store_bytes"] = stored_bytes(state.maps)
        output = self._process(task, state)
        for name, before in self._metrics["entries"].items():
            if not before:  # all rows are this batch's, and counting them asks nothing of the replica
                self._metrics["entries"][name] = len(state.map(name))
        work.reach(1)
        started = time.perf_counter()
        offsets = {name: list(span) for name, span in work.ranges.items()}
        if any(isinstance(each, ArrivedRows) for each in work.inbox):
            offsets["batch"] = [work.batch, work.batch + 1]
        rows = output.records | noted_puts(self._job, work.sub.stores, state, work.run.partition)
        segment = store.publish(work.number, rows, offsets, inputs=work.facts.inputs, discard_damaged=True)
        task.note_segment(segment)
        self._metrics["segment_bytes"] = segment.size_bytes
        self._mark("publish", started)
        self._counting.on_store_calls(work.run.task_id, take_calls(state))
        self._counting.on_flushed(work.run.task_id, volumes_of_changes(segment.own_changes), self._seconds["publish"])
        return segment

    def _written_batches(self) -> list[int]:
        """Look up in the ledger the newest batch that the task has written in each of its phases."""
        if not self._job.exactly_once:
            return []
        task_id, phases = self._work.run.task_id, range(1, len(self._work.sub.levels))
        ledger = self._log.ledger(self._job.plan.application_id)
        return [ledger[name] for name in (task_id, *(f"{task_id}/{phase}" for phase in phases)) if name in ledger]

    def _process(self, task: OpenTask, state: Any) -> TaskOutput:
        """Read the input and run the task on it; ``state`` is the state at the begin of the batch."""
        work, job = self._work, self._job
        self._notes.step("reading its input")
        started = time.perf_counter()
        lost: dict[str, int] = {}
        records = topic_batches(work.inbox, self._log, work.batch, None if job.reading.loss_fails else lost)
        if lost:
            self._metrics["lost"] = lost
        self._metrics["records_read"] = sum(
            each.records.num_rows for each in records if each.topic not in job.plan.internal_topics
        )
        started = self._mark("read", started)

        shared = global_stores(job, self._log).views if job.plan.global_topics else None
        notes, counting = self._notes, self._counting

        def make() -> StreamTask:
            return StreamTask(
                job.topology,
                job.config,
                TaskPart(work.run.task_id, job.plan.partitions, work.sub.nodes),
                state,
                TaskEnvironment(SensorGroup((notes, counting)), global_stores=shared, until_latest=job.until_latest),
            )

        notes.step("processing")
        stream_task = task.stream_task(make, shared)
        held = work.run.phase in work.sub.held
        output = stream_task.process(records, unix_ms(), hold_punctuation=held)
        notes.step("publishing its state")
        self._mark("process", started)
        self._metrics |= output.metrics
        return output

    def _handed_on(self, outputs: Outputs) -> Iterator[HandedRows]:
        """Iterate over the rows for internal topics, once for each sub-topology that reads them."""
        plan, level = self._job.plan, self._work.level
        for topic, rows in outputs.items():
            if topic not in plan.internal_topics or not rows.num_rows:
                continue
            for sub in plan.readers(topic):
                to = plan.entry_level(sub, after=level)
                reader = TaskRun(sub.id, ALL_PARTITIONS, sub.levels.index(to))
                yield HandedRows(to, reader, topic, run_name(self._work.run), rows)


@cache
def _counting(level: str) -> CountingSensor:
    """Return the counts of this process, whose tasks take turns, at a recording level."""
    return CountingSensor.at_level(level)


@cache
def _crash_notes(root: str) -> CrashNotes:
    return CrashNotes(root)


_logs: OrderedDict[tuple[str, int, str], TopicLog] = OrderedDict()
_MOST_LOGS = 4  # applications
_global_stores: OrderedDict[tuple[str, int, str], GlobalStores] = OrderedDict()


def global_stores(job: SparkJob, log: TopicLog) -> GlobalStores:
    """Return the global stores of an application, opened once in a process."""
    identity = f"{job.plan.application_id} {job.checkpoint} {job.fingerprint}"
    key = (identity, job.epoch, job.app_digest)
    stores = _global_stores.get(key)
    if stores is not None:
        stores.read_from(log)  # this process closes logs when it has many
        _global_stores.move_to_end(key)
    else:
        for earlier in [each for each in _global_stores if each[0] == identity]:
            _global_stores.pop(earlier).close()
        while len(_global_stores) >= _MOST_LOGS:
            _global_stores.popitem(last=False)[1].close()
        stores = _global_stores[key] = GlobalStores(job.topology, job.config, log, job.replica_root, identity)
    return stores


def close_global_stores() -> None:
    """Close all global stores of this process."""
    while _global_stores:
        _global_stores.popitem()[1].close()


def log_of(job: SparkJob) -> TopicLog:
    """Return the log of an application; workers never fork.

    It stays open from task to task, unless the process has run tasks of several other applications since. So keep it no
    longer than a task.
    """
    key = (job.log_url, job.epoch, job.app_digest)
    if key not in _logs:
        while len(_logs) >= _MOST_LOGS:
            _logs.popitem(last=False)[1].close()
        _logs[key] = job.open_log()
    _logs.move_to_end(key)
    return _logs[key]


def noted_puts(job: SparkJob, stores: Iterable[str], state: TaskOverlay, partition: int) -> dict[str, pa.RecordBatch]:
    """Return the records that the segment's changes do not determine, by changelog topic; it holds them as outputs."""
    by_topic: dict[str, pa.RecordBatch] = {}
    for topic, records in records_of_puts(job.changelogs, ((store, state.puts(store)) for store in stores)):
        partitions = pa.repeat(pa.scalar(partition, pa.int32()), records.num_rows)
        by_topic[topic] = records.append_column("partition", partitions)
    return by_topic


def changelog_records(job: SparkJob, run: TaskRun, segment: Segment) -> list[tuple[str, pa.RecordBatch]]:
    """Return (topic, records) of a batch in a fixed order, without those of `noted_puts`."""
    if job.numbers_topic is None or not segment.stored:
        return []
    meta: Mapping[str, int] = segment.head.meta
    changes = ((store, rows) for store in segment.stores for rows in segment.change_batches(store))
    records = records_of_changes(job.changelog_formats, job.changelogs, changes, meta)
    return [*records, (job.numbers_topic, TaskNumbers(segment.batch, segment.checksum, dict(meta)).record(run.task_id))]


def topic_batches(
    inbox: Sequence[Envelope | ArrivedRows], log: TopicLog, batch: int, lost: dict[str, int] | None = None
) -> list[TopicBatch]:
    """Collect the input of a task, in order of topics and partitions.

    Args:
        inbox: The envelopes and rows for the task.
        log: The log that holds the records of ranges.
        batch: The batch's number.
        lost: Receives the number of offsets that are gone, by ``topic-partition``; None: a lost offset is an error.

    Raises:
        OffsetOutOfRangeError: Offsets are gone, and ``lost`` is None.
    """
    batches: list[TopicBatch] = []
    for envelope in inbox:
        if isinstance(envelope, ArrivedRows):
            rows = _with_offsets(envelope.rows, batch * _OFFSETS_A_BATCH)
            batches.append(TopicBatch(envelope.topic, envelope.partition, rows))
        elif envelope.kind is EnvelopeKind.RANGE:
            records = read_planned_range(envelope, log, lost)
            if records:
                joined = records[0] if len(records) == 1 else pa.concat_batches(records)
                batches.append(TopicBatch(envelope.topic, envelope.partition, joined))
    return sorted(batches, key=lambda b: (b.topic, b.partition))


def _with_offsets(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    offsets = pa.array(np.arange(first, first + rows.num_rows))
    columns = [offsets, *(rows.column(name) for name in RECORD_SCHEMA.names[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def read_planned_range(envelope: Envelope, log: TopicLog, lost: dict[str, int] | None) -> list[pa.RecordBatch]:
    """Read the records of a RANGE envelope.

    Args:
        envelope: The range.
        log: The log that holds its records.
        lost: Receives the number of offsets that are gone, by ``topic-partition``; None: a lost offset is an error.

    Raises:
        OffsetOutOfRangeError: Offsets are gone, and ``lost`` is None.
    """
    tp = TopicPartition(envelope.topic, envelope.partition)
    start, end = planned = envelope.range
    if envelope.is_gone:
        start = end
    records: list[pa.RecordBatch] | None = None
    while records is None:
        try:
            records = list(log.read_range(*_place(tp), start, end)) if start < end else []
            begins = records[0].column("offset")[0].as_py() if records else end
            if begins > start:  # offsets have gaps, so not all that miss are gone
                start = min(max(start, log.beginning_offset(*_place(tp))), begins)
        except (OffsetOutOfRangeError, LogUnavailableError):  # Kafka waits for an end that the log no longer has
            first, last = log.beginning_offset(*_place(tp)), log.end_offset(*_place(tp))
            if first <= start and end <= last:
                raise
            if lost is None:
                raise lost_records_error(tp, start if first > start else end, first, last) from None
            end = min(end, last)
            start = min(max(start, first), end)
    gone = (planned[1] - planned[0]) - (end - start)
    if gone and lost is None:
        raise lost_records_error(tp, planned[0], start, end)
    if gone and lost is not None:
        lost[f"{tp.topic}-{tp.partition}"] = gone
    return records


def _place(tp: TopicPartition) -> tuple[str, int]:
    return tp.topic, tp.partition
