"""One task of a stream thread: its buffers, its state, and the processing of what is ready."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.engines.threads.loop.buffers import PartitionGroup
from penstock.engines.threads.loop.replay_notes import ReplayNotes
from penstock.log.client_counts import CLOSED_TASKS, count
from penstock.runtime.record import TopicBatch
from penstock.runtime.task import StreamTask, TaskPart
from penstock.state.counted_overlay import count_calls, take_calls

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.engines.threads.app import ThreadApp
    from penstock.engines.threads.replicas.task_replica import TaskReplica
    from penstock.log.base import Fetched, TopicPartition
    from penstock.log.thread_clients import Part
    from penstock.runtime.context import Surroundings
    from penstock.runtime.task import TaskOutput
    from penstock.topology.plan.plan import TaskId

__all__ = ["ActiveTask", "BatchSize"]

_BATCH_BYTES = 64 << 20  # the most that a task processes at once, as its columns and outputs are in memory too
_FIRST_RECORDS = 1_000
_GROWTH, _SHRINKING = 32, 8  # the largest steps
_AIM_S = 0.5  # the time of a batch: short enough to commit, report and stop in between


class ActiveTask:
    """Kafka's active ``StreamTask`` of a thread.

    Args:
        app: The application.
        task: The task.
        replica: Its state, restored.
        positions: The offsets from which its partitions are read; it may have no others.
        surroundings: The parts of the process that it uses.
    """

    def __init__(
        self,
        app: ThreadApp,
        task: TaskId,
        replica: TaskReplica,
        positions: Mapping[TopicPartition, int],
        surroundings: Surroundings,
    ) -> None:
        self.id = task
        self.replica = replica
        self.committed = dict(positions)
        self.records_in = self.records_out = 0
        self.records_read = self.records_written = 0  # those of topics that are not internal
        self.is_changed = False  # whether there is anything to commit
        self._sub = app.subtopology(task)
        self._logical = {tp: app.logical(tp.topic) for tp in positions}
        self._internal = frozenset(app.plan.internal_topics)
        self._sensor = surroundings.sensor
        if self._sensor.detailed:
            count_calls(replica.state)
        part = TaskPart(str(task), app.plan.partitions, self._sub.nodes)
        self._task = StreamTask(app.topology, app.config, part, replica.state, surroundings)
        in_order = sorted(positions, key=lambda tp: (self._logical[tp], tp.partition))
        idle_ms = int(app.config["max.task.idle.ms"])
        self.buffers = PartitionGroup({tp: positions[tp] for tp in in_order}, idle_ms, self._times)
        self._partition_times: dict[TopicPartition, int] = {}  # of what is buffered
        self._size = BatchSize(int(app.config["max.poll.records"]))
        self._tick_ms = int(app.config["penstock.tick.interval.ms"])
        self._ticks_at_ms = surroundings.start_ms() if self._sub.ticks else None
        # Single records go depth first, so that users' functions are called in Kafka's order; with caching a batch is
        # what is cached.
        self._depth_first = int(app.config["statestore.cache.max.bytes"]) == 0
        self._notes = ReplayNotes(app, task, replica, positions, surroundings.start_ms())

    def add(self, tp: TopicPartition, fetched: Fetched) -> None:
        """Buffer records that have been fetched."""
        self.buffers.add(tp, fetched)

    def process(
        self, now_ms: int, ends: Mapping[TopicPartition, int], until_ms: int | None = None
    ) -> TaskOutput | None:
        """Process records that are ready, and punctuations that are due; None: there was nothing to do.

        Args:
            now_ms: The wall-clock time.
            ends: The ends of the task's partitions as they are known.
            until_ms: The time up to which it may process records now; None: all that are ready.
        """
        taken = self.buffers.take(now_ms, ends, self._size.records, _BATCH_BYTES, until_ms)
        wakes_at = self._wakes_at_ms()
        if not taken and (wakes_at is None or now_ms < wakes_at):
            return None
        self._notes.took(now_ms, {tp: records.num_rows for tp, records in taken})
        batch = [TopicBatch(self._logical[tp], tp.partition, records) for tp, records in taken]
        count = sum(each.records.num_rows for each in batch)
        began = time.perf_counter()
        output = self._task.process(batch, now_ms, depth_first=self._depth_first and count <= 1)
        self._size.note(count, time.perf_counter() - began)
        if self._sensor.detailed:
            self._sensor.on_store_calls(str(self.id), take_calls(self.replica.state))
        if self._ticks_at_ms is not None:
            self._ticks_at_ms = now_ms + self._tick_ms
        self._count(batch, output)
        self.is_changed = True
        return output

    def _count(self, batch: Sequence[TopicBatch], output: TaskOutput) -> None:
        internal = self._internal
        for each in batch:
            self.records_in += each.records.num_rows
            self.records_read += 0 if each.topic in internal else each.records.num_rows
        for topic, rows in output.records.items():
            self.records_out += rows.num_rows
            self.records_written += 0 if topic in internal else rows.num_rows

    @property
    def batch_records(self) -> int:
        """The most records that it processes at once."""
        return self._size.records

    def front(self, ends: Mapping[TopicPartition, int]) -> int:
        """Return the time from which on its waiting records are; its stream time while some have not come yet."""
        head = None if self.buffers.awaited(ends) else self.buffers.time_of(1)
        return self.stream_time_ms if head is None else max(self.stream_time_ms, head)

    def piece_ends_ms(self, ends: Mapping[TopicPartition, int]) -> int | None:
        """Return the time that it reaches with its next piece; None if that is all there is."""
        size = self._size.records
        return self.buffers.time_of(size) if self.buffers.records > size or self.buffers.has_more(ends) else None

    def time_of(self, count: int) -> int:
        """Return the time that it reaches with so many of its buffered records."""
        time = self.buffers.time_of(count)
        return self.stream_time_ms if time is None else time

    @property
    def ticks(self) -> bool:
        """Whether time alone may make it do something."""
        return self._sub.ticks

    def wakes_at_ms(self, now_ms: int) -> int | None:
        """Return when there is something to do though nothing arrives; None: never."""
        times = (self._wakes_at_ms(), self.buffers.wakes_at_ms(now_ms))
        return min((time for time in times if time is not None), default=None)

    def _wakes_at_ms(self) -> int | None:
        times = (self._ticks_at_ms, self._task.next_punctuation_ms)
        return min((time for time in times if time is not None), default=None)

    def _times(self, tp: TopicPartition, records: pa.RecordBatch) -> NDArray[np.int64]:
        batch = TopicBatch(self._logical[tp], tp.partition, records)
        times, self._partition_times[tp] = self._task.times(batch, self._partition_times.get(tp))
        return times

    def moved(self, *, some: bool = False) -> dict[TopicPartition, int]:
        """Return the positions that are not those of the last commit.

        Args:
            some: Return all positions if the task has changed though none has moved, as time does.
        """
        positions = self.buffers.positions()
        moved = {tp: offset for tp, offset in positions.items() if offset != self.committed[tp]}
        return positions if some and self.is_changed and not moved else moved

    @property
    def has_unnoted(self) -> bool:
        """Whether a note for replays is to be written before the task leaves."""
        return self._notes.has_turns

    def changes(self, now_ms: int, *, is_last: bool = False) -> list[Part]:
        """Return what a commit adds to the outputs: changelog records, numbers, and a note for replays if one is due.

        Args:
            now_ms: The wall-clock time.
            is_last: Whether the task leaves the thread with this commit.
        """
        return [*self.replica.changes(), *self._notes.part(now_ms, self.buffers.positions(), is_last=is_last)]

    def commit(self, following: Mapping[TopicPartition, int], inputs: Mapping[TopicPartition, int]) -> None:
        """Note that the log has committed everything so far.

        Args:
            following: The offset after the last record of the commit, for each partition that was written.
            inputs: The positions that were committed, those that have moved.
        """
        changes, began = self.replica.pending, time.perf_counter()
        self.replica.commit(following, inputs)
        self._sensor.on_flushed(str(self.id), changes, time.perf_counter() - began)
        self.committed |= inputs
        self._notes.committed(self.committed)
        self.is_changed = False

    @property
    def stream_time_ms(self) -> int:
        """The largest timestamp that the task has seen; -1 before the first record."""
        return self._task.stream_time_ms

    @property
    def dropped_records(self) -> int:
        """Kafka's ``dropped-records-total`` since the thread's start."""
        return self._task.dropped_records

    def store(self, name: str) -> Any:
        """Return the typed view of a store, with the writes that are not committed yet."""
        return self._task.store(name)

    def close(self) -> None:
        """Close the user's processors."""
        count("consumer", CLOSED_TASKS)
        self._task.close()


class BatchSize:
    """The size of a task's next batch.

    Larger batches take less time a record, and write fewer changes of the same key. But nothing is committed within
    one, so the size follows the measured time of a record.

    Args:
        most: ``max.poll.records``.

    Attributes:
        records: The most records of the next batch.

    >>> size = BatchSize(20_000)
    >>> size.note(1_000, 0.01)
    >>> size.records
    20000
    >>> size.note(20_000, 4.0)
    >>> size.records
    2500
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.records = min(most, _FIRST_RECORDS)

    def note(self, count: int, seconds: float) -> None:
        """Note the size and the time of a batch."""
        if not count:
            return
        target = int(count * _AIM_S / max(seconds, 1e-9))
        if target < count:
            self.records = max(1, target, self.records // _SHRINKING)  # one slow batch may have had to wait
        elif count >= self.records // 2:  # a limit of time may cut it a little shorter
            self.records = min(self._most, target, self.records * _GROWTH)
