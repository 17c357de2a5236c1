"""What runs inside a Python worker in real-time mode: records come one by one, for as long as Spark's batch lasts.

Each task writes its outputs as they arise. Its state is published when Spark's batch ends, together with the offset up
to which it counts; so a record that comes again after a crash is not counted again, though what it gave may be written
again. That is what at least once means here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import FencedError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, TopicPartition
from penstock.plan.plan import TaskRun
from penstock.runtime.task import StreamTask, TopicBatch
from penstock.spark.failures import wrapped
from penstock.spark.job import load_job
from penstock.spark.kept import put_back, take
from penstock.spark.realtime_input import SparkInput, arrivals, connection
from penstock.spark.worker_process import prepare_worker

if TYPE_CHECKING:
    from penstock.log.kafka.deliveries import Deliveries
    from penstock.plan.plan import PlannedSubTopology
    from penstock.spark.job import SparkJob
    from penstock.state.overlay import BatchState

__all__ = ["REPORT_DDL", "STOP_FILE", "run_realtime"]

REPORT_DDL = "report string"
STOP_FILE = "realtime-stop"  # in the checkpoint location, with the epoch of the start that is to end
_LOOK_S = 0.2
_PACE_S = 0.004
_ATTEMPTS = 1_000  # of one batch of Spark's; each publishes a segment of its own


def run_realtime(data: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Processes what comes until Spark ends the batch; then publishes the state of its tasks."""
    from pyspark import TaskContext

    prepare_worker()
    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark sets it in workers
    work = _Work(load_job(data), int(context.getLocalProperty("streaming.sql.batchId") or 0))
    source = SparkInput(batches, connection())
    try:
        for rows in arrivals(source, _LOOK_S, _PACE_S):
            work.take(rows)
        work.finish()
        source.end_if_closed()
    except BaseException as error:
        work.abandon()
        source.end_if_closed()
        if isinstance(error, Exception):
            raise wrapped(error) from None
        raise
    yield pa.RecordBatch.from_pydict({"report": pa.array([json.dumps(work.facts())])})


class _Work:
    """The tasks of one Spark task during one of Spark's batches."""

    def __init__(self, job: SparkJob, batch: int) -> None:
        self._job = job
        self._batch = batch
        self._tasks: dict[TopicPartition, list[_RunningTask]] = {}
        self._output = _output(job)
        self._stop_file = Path(job.checkpoint) / STOP_FILE if "://" not in job.checkpoint else None
        self._looked = time.monotonic()
        self._ended = False
        self._done: list[dict[str, Any]] = []

    def take(self, rows: list[pa.RecordBatch]) -> None:
        """Processes records, or looks at the clock if there are none."""
        if self._ended:
            return
        for tp, records in _by_place(rows):
            for task in self._of(tp):
                task.process(records)
        if not rows:
            for tasks in self._tasks.values():
                for task in tasks:
                    task.tick()
        self._output.poll()
        if time.monotonic() - self._looked > _LOOK_S:
            self._looked = time.monotonic()
            if self._is_told_to_stop():
                self.finish()
                self._ended = True

    def finish(self) -> None:
        """Waits until all outputs are written, then publishes the state."""
        if self._tasks:
            self._output.flush()
        for tasks in self._tasks.values():
            for task in tasks:
                task.publish()
                self._done.append(task.facts)
        self._tasks = {}

    def abandon(self) -> None:
        """Forgets everything since the batch began; it will come again."""
        for tasks in self._tasks.values():
            for task in tasks:
                task.close()

    def facts(self) -> list[dict[str, Any]]:
        """What the tasks did."""
        return self._done

    def _of(self, tp: TopicPartition) -> list[_RunningTask]:
        found = self._tasks.get(tp)
        if found is None:
            readers = self._job.plan.readers(tp.topic)
            found = self._tasks[tp] = [_RunningTask(self._job, sub, tp, self._batch, self._output) for sub in readers]
        return found

    def _is_told_to_stop(self) -> bool:
        try:
            return self._stop_file is not None and self._stop_file.read_text() == str(self._job.epoch)
        except OSError:
            return False


class _RunningTask:
    """One task during one of Spark's batches."""

    def __init__(self, job: SparkJob, sub: PlannedSubTopology, tp: TopicPartition, batch: int, output: _Output) -> None:
        self._job = job
        self._tp = tp
        self._output = output
        self._run = TaskRun(sub.id, tp.partition)
        self._kept = take(job, self._run, sub.stores, keeps_state=True)
        store = self._kept.store
        assert store is not None  # noqa: S101 - keeps_state
        self._store = store
        self._ticks = sub.ticks
        try:
            self._number = batch * _ATTEMPTS
            while store.find(self._number, discard_damaged=True) is not None:
                self._number += 1
            state: BatchState = store.begin(self._number)
            self._state = state
            self._mark = f"realtime/{len(job.moves)}/{tp.topic}-{tp.partition}"
            self._start = self._next = int(state.meta.get(self._mark, 0))
            self._task = self._kept.task(lambda: _stream_task(job, sub, self._run, state))
        except BaseException:
            self._kept.close()
            raise
        self.facts: dict[str, Any] = {"task": self._run.task_id, "records_read": 0, "records_written": 0, "dropped": 0}

    def process(self, records: pa.RecordBatch) -> None:
        offsets = records.column("offset")
        last = offsets[-1].as_py()
        if last < self._next:
            return  # it counts already: it came before a crash
        if offsets[0].as_py() < self._next:
            records = records.filter(pa.compute.greater_equal(offsets, self._next))
        self._write([TopicBatch(self._tp.topic, self._tp.partition, records)])
        self._next = last + 1

    def tick(self) -> None:
        if self._ticks:
            self._write([])

    def publish(self) -> None:
        self._state.meta[self._mark] = self._next
        place = f"{self._tp.topic}-{self._tp.partition}"
        segment = self._store.publish(self._number, {}, {place: [self._start, self._next]}, discard_damaged=True)
        if segment.stored and not segment.published_here:
            raise FencedError(
                f"another attempt has published the state of task {self._run.task_id}",
                hint="Two instances ran it for a moment; this one begins again from what the other has published.",
                task=self._run.task_id,
            )
        self._kept.ran(segment)
        self.facts["ends"] = {place: self._next}
        put_back(self._kept)

    def close(self) -> None:
        self._kept.close()

    def _write(self, batch: list[TopicBatch]) -> None:
        output = self._task.process(batch, int(time.time() * 1000))
        for topic, rows in output.records.items():
            self._output.write(topic, rows)
            self.facts["records_written"] += rows.num_rows
        self.facts["records_read"] += sum(one.records.num_rows for one in batch)
        self.facts["dropped"] += output.metrics["dropped"]
        self.facts["stream_time_ms"] = output.metrics["stream_time_ms"]


def _stream_task(job: SparkJob, sub: PlannedSubTopology, run: TaskRun, state: BatchState) -> StreamTask:
    return StreamTask(job.topology, job.config, run.task_id, state, nodes=sub.nodes, partitions=job.plan.partitions)


class _Output:
    """Writes at once, without a transaction; a producer lives as long as the worker."""

    def __init__(self, job: SparkJob) -> None:
        from penstock.log.kafka.clients import Clients
        from penstock.log.kafka.deliveries import Deliveries

        clients = Clients(job.log_url, {"producer.linger.ms": "0", **job.log_settings})
        self._deliveries: Deliveries = Deliveries()
        self._producer = clients.producer(self._deliveries, own={"socket.nagle.disable": True})
        self._patience_s = clients.patience_s

    def write(self, topic: str, rows: pa.RecordBatch) -> None:
        """Rows of a task's output, which have their partitions."""
        from penstock.log.kafka.deliveries import enqueue_to

        partitions = [max(each, 0) for each in rows.column("partition").to_pylist()]
        enqueue_to(self._producer, topic, partitions, rows, self._deliveries)

    def poll(self) -> None:
        self._producer.poll(0)
        self._deliveries.check()

    def flush(self) -> None:
        from penstock.log.kafka.deliveries import flush

        flush(self._producer, self._deliveries, self._patience_s)


_outputs: dict[str, _Output] = {}


def _output(job: SparkJob) -> _Output:
    if job.program_id not in _outputs:
        _outputs[job.program_id] = _Output(job)
    return _outputs[job.program_id]


def _by_place(rows: list[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Records of the connector as those of a log, by their partition."""
    places: dict[TopicPartition, list[pa.RecordBatch]] = {}
    for batch in rows:
        if batch.num_rows:
            tp = TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
            places.setdefault(tp, []).append(batch)
    for tp, batches in places.items():
        joined = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        headers = joined.column("headers")
        columns = [
            joined.column("offset"),
            joined.column("timestamp"),
            joined.column("key").cast(pa.large_binary()),
            joined.column("value").cast(pa.large_binary()),
            pa.nulls(len(joined), HEADERS_TYPE) if headers.null_count == len(joined) else headers.cast(HEADERS_TYPE),
        ]
        yield tp, pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
