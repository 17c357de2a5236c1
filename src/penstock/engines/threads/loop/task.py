"""One task of a stream thread: its buffers, its state, and the processing of what is ready.

Records that are fetched and not yet processed wait in Kafka's ``PartitionGroup``.

A task with several partitions takes the record with the smallest timestamp among the heads of their buffers (ties:
topic). Taken record by record that is a merge, and it is exact only while all heads are known. So the rule of `take`:

    The merge goes on until it would need the head of a partition that is awaited, and whose buffer is empty.

By ``max.task.idle.ms`` (KIP-695) a partition without buffered records is awaited

- with -1: never;
- else if its end in the log is not known yet, or is beyond the fetched position (lag);
- with more than 0 also without lag, until it has been empty for that time.

A record leaves the merge when all before it in its partition have left, so the merge is the order of the running maxima
of the timestamps. The last buffered record of each partition that would be awaited is therefore a bound, and a batch is
everything up to the smallest of these bounds. It follows: with the lag known and 0 or more to wait, the batches of any
fetches, one after the other, are the merge of all records.

Times are those of the records; where a source has a timestamp extractor, those that it returns. A record that does not
decode, and is left out later, still counts with its own time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.engines.threads.loop.commit import ReplayNotes
from penstock.log.client_counts import CLOSED_TASKS, count
from penstock.log.stored_batches import record_bytes
from penstock.runtime.rows import TopicBatch, volumes_of_changes
from penstock.runtime.task import StreamTask, TaskPart
from penstock.state.maps import count_calls, take_calls

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.engines.threads.app import ThreadApp
    from penstock.engines.threads.replicas.task_replica import TaskReplica
    from penstock.log.base import Fetched, TopicPartition
    from penstock.log.thread_clients import Part
    from penstock.runtime.context import TaskEnvironment
    from penstock.runtime.task import TaskOutput
    from penstock.topology.plan.plan import TaskId

__all__ = ["NEVER_WAIT", "ActiveTask", "BatchSize", "PartitionGroup", "Taken"]

NEVER_WAIT = -1
Times = Callable[["TopicPartition", pa.RecordBatch], "NDArray[np.int64]"]
Taken = list[tuple["TopicPartition", pa.RecordBatch]]


@dataclass(slots=True)
class _Chunk:
    """Records that were fetched together, without those that have been taken."""

    records: pa.RecordBatch
    times: NDArray[np.int64]
    bytes: int
    reached: NDArray[np.int64] | None = None  # the running maxima of the times, once they are asked for

    def split(self, count: int) -> tuple[_Chunk, _Chunk]:
        size = self.bytes * count // self.records.num_rows
        first = _Chunk(self.records.slice(0, count), self.times[:count], size)
        reached = None if self.reached is None else self.reached[count:]
        return first, _Chunk(self.records.slice(count), self.times[count:], self.bytes - size, reached)


@dataclass(slots=True)
class _Buffer:
    """The buffered records of one partition; ``fetched`` is the offset after the last of them."""

    fetched: int
    chunks: deque[_Chunk] = field(default_factory=deque)
    records: int = 0
    bytes: int = 0
    idle_until_ms: int | None = None  # since when it is empty, plus the time to wait

    @property
    def following(self) -> int:
        """The offset of the first record that has not been taken."""
        return int(self.chunks[0].records.column("offset")[0].as_py()) if self.chunks else self.fetched

    def add(self, chunk: _Chunk) -> None:
        self.chunks.append(chunk)
        self.records += chunk.records.num_rows
        self.bytes += chunk.bytes
        self.idle_until_ms = None

    def maxima(self) -> NDArray[np.int64]:
        """Return the running maxima of the times of all buffered records."""
        times = [chunk.times for chunk in self.chunks]
        return np.maximum.accumulate(times[0] if len(times) == 1 else np.concatenate(times))

    def take(self, count: int) -> pa.RecordBatch:
        taken = []
        while count:
            chunk = self.chunks.popleft()
            if chunk.records.num_rows > count:
                chunk, rest = chunk.split(count)
                self.chunks.appendleft(rest)
            taken.append(chunk.records)
            count -= chunk.records.num_rows
            self.records -= chunk.records.num_rows
            self.bytes -= chunk.bytes
        return taken[0] if len(taken) == 1 else pa.concat_batches(taken)


class PartitionGroup:
    """The buffers of a task.

    Args:
        positions: The partitions and the offsets from which they are read, in the order that decides ties.
        idle_ms: ``max.task.idle.ms``.
        times: Returns the times of records; None: those in the column ``timestamp``.

    Attributes:
        records: The number of buffered records.
        bytes: Their size in memory.
        disorder_ms: The longest time by which a record is behind one before it, of those that `time_of` has seen.
    """

    def __init__(self, positions: Mapping[TopicPartition, int], idle_ms: int = 0, times: Times | None = None) -> None:
        self._buffers = {tp: _Buffer(offset) for tp, offset in positions.items()}
        self._idle_ms = idle_ms
        self._times = times
        self.records = 0
        self.bytes = 0
        self.disorder_ms = 0

    def add(self, tp: TopicPartition, fetched: Fetched) -> None:
        """Add records that follow those that were added before."""
        buffer = self._buffers[tp]
        buffer.fetched = fetched.next_offset
        records = fetched.records
        if records.num_rows:
            times = np.empty(0, np.int64)
            if len(self._buffers) > 1:  # else they are not asked for
                stored = self._times is None
                times = records.column("timestamp").to_numpy() if stored else self._times(tp, records)  # type: ignore[misc]
            size = record_bytes(records)
            buffer.add(_Chunk(records, times, size))
            self.records += records.num_rows
            self.bytes += size

    def take(
        self,
        now_ms: int,
        ends: Mapping[TopicPartition, int],
        most: int,
        most_bytes: int = 1 << 62,
        until_ms: int | None = None,
    ) -> Taken:
        """Take the next records in processing order, as many as the rule above lets go.

        Args:
            now_ms: The wall-clock time.
            ends: The ends of the partitions as they are known; see `Fetcher.ends`.
            most: The most records.
            most_bytes: Their approximate size at most, but at least one record.
            until_ms: The time up to which records are taken; None: all.

        Returns:
            The records by partition. Merged by running maxima of time they are in processing order.
        """
        if self._await_empty(now_ms, ends) or not self.records:
            return []
        full = {tp: buffer for tp, buffer in self._buffers.items() if buffer.records}
        if self.bytes > most_bytes:
            most = min(most, max(1, most_bytes * self.records // self.bytes))
        if until_ms is not None:
            reached = [self._count_until(tp, until_ms) for tp in full]
        if len(full) == 1:
            counts = [min(most, self.records if until_ms is None else reached[0])]
        else:
            counts = self._counts(full, ends, most, None if until_ms is None else reached)
        taken = [(tp, full[tp].take(count)) for tp, count in zip(full, counts, strict=True) if count]
        self.records -= sum(counts)
        self.bytes = sum(buffer.bytes for buffer in full.values())
        self._await_empty(now_ms, ends)
        return taken

    def _counts(
        self,
        full: Mapping[TopicPartition, _Buffer],
        ends: Mapping[TopicPartition, int],
        most: int,
        reached: Sequence[int] | None,
    ) -> list[int]:
        """Return how many records of each of these partitions may go."""
        maxima = [buffer.maxima() for buffer in full.values()]
        bounds = [
            (int(maxima[rank][-1]), rank)
            for rank, tp in enumerate(full)
            if self._idle_ms > 0 or (self._idle_ms == 0 and self._lags(tp, ends))
        ]
        counts = [len(each) for each in maxima]
        if bounds:
            time, last = min(bounds)
            # Ties go in order of rank: those of later partitions come behind the bound.
            counts = [
                int(np.searchsorted(each, time, "right" if rank <= last else "left"))
                for rank, each in enumerate(maxima)
            ]
        if reached is not None:
            counts = [min(pair) for pair in zip(counts, reached, strict=True)]
        if sum(counts) <= most:
            return counts
        ranks = np.repeat(np.arange(len(counts)), counts)
        first = np.lexsort((ranks, np.concatenate([each[:count] for each, count in zip(maxima, counts, strict=True)])))
        return [int(count) for count in np.bincount(ranks[first[:most]], minlength=len(counts))]

    def _count_until(self, tp: TopicPartition, time: int) -> int:
        """Return how many buffered records of a partition come before the first one that reaches more than a time."""
        count = 0
        for chunk in self._buffers[tp].chunks:
            part = int(np.searchsorted(self._reached(tp, chunk), time, "right"))
            count += part
            if part < chunk.records.num_rows:
                break
        return count

    def _reached(self, tp: TopicPartition, chunk: _Chunk) -> NDArray[np.int64]:
        if chunk.reached is None:
            times = chunk.times
            if len(times) < chunk.records.num_rows:
                stored = self._times is None
                times = chunk.records.column("timestamp").to_numpy() if stored else self._times(tp, chunk.records)  # type: ignore[misc]
            chunk.reached = np.maximum.accumulate(times)
            late = (chunk.reached - times)[times >= 0]  # others do not decode
            self.disorder_ms = max(self.disorder_ms, int(late.max(initial=0)))
        return chunk.reached

    def time_of(self, count: int) -> int | None:
        """Return the time that is reached with so many records of that partition that is the slowest; None: of none.

        Of a partition with fewer buffered records it is the time of the last one.
        """
        times = []
        for tp, buffer in self._buffers.items():
            left, before = min(count, buffer.records) - 1, -1
            for chunk in buffer.chunks:
                reached = self._reached(tp, chunk)
                if left < chunk.records.num_rows:
                    times.append(max(before, int(reached[left])))
                    break
                left -= chunk.records.num_rows
                before = max(before, int(reached[-1]))
        return min(times, default=None)

    def awaited(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether there are records of a partition of which none is buffered, as far as the ends are known."""
        return any(not buffer.records and self._lags(tp, ends) for tp, buffer in self._buffers.items())

    def has_more(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether there are records that are not buffered yet, as far as the ends are known."""
        return any(self._lags(tp, ends) for tp in self._buffers)

    def lag(self, ends: Mapping[TopicPartition, int]) -> int:
        """Return the number of offsets that are not processed yet, as far as the ends are known."""
        return sum(max(0, ends[tp] - each.following) for tp, each in self._buffers.items() if tp in ends)

    def _lags(self, tp: TopicPartition, ends: Mapping[TopicPartition, int]) -> bool:
        end = ends.get(tp)
        return end is None or end > self._buffers[tp].fetched

    def _await_empty(self, now_ms: int, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether any partition without records is awaited."""
        empty = [tp for tp, buffer in self._buffers.items() if not buffer.records]
        waits = [self._awaits(tp, now_ms, ends) for tp in empty]  # all of them: each begins to wait
        return any(waits)

    def _awaits(self, tp: TopicPartition, now_ms: int, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether records of this partition, of which none is buffered, are waited for."""
        if self._idle_ms == NEVER_WAIT:
            return False
        buffer = self._buffers[tp]
        if self._lags(tp, ends):
            buffer.idle_until_ms = None
            return True
        if buffer.idle_until_ms is None:
            buffer.idle_until_ms = now_ms + self._idle_ms
        return now_ms < buffer.idle_until_ms

    def wakes_at_ms(self, now_ms: int) -> int | None:
        """Return when `take` is to be called though nothing has arrived; None: not before."""
        if not self.records:
            return None
        waits = (buffer.idle_until_ms for buffer in self._buffers.values())
        return min((wait for wait in waits if wait is not None and wait > now_ms), default=None)

    def positions(self) -> dict[TopicPartition, int]:
        """Return by partition the offset of the first record that has not been taken: what is to be committed."""
        return {tp: buffer.following for tp, buffer in self._buffers.items()}

    def longer_than(self, most: int) -> Iterable[TopicPartition]:
        """Return the partitions of which more than so many records are buffered."""
        return [tp for tp, buffer in self._buffers.items() if buffer.records > most]


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
        environment: The parts of the process that it uses.
    """

    def __init__(
        self,
        app: ThreadApp,
        task: TaskId,
        replica: TaskReplica,
        positions: Mapping[TopicPartition, int],
        environment: TaskEnvironment,
    ) -> None:
        self.id = task
        self.replica = replica
        self.committed = dict(positions)
        self.records_in = self.records_out = 0
        self.records_read = self.records_written = 0  # those of topics that are not internal
        self.is_changed = False  # whether there is anything to commit
        self.took_s = 0.0  # the time of its last batch
        self._sub = app.subtopology(task)
        self._logical = {tp: app.logical(tp.topic) for tp in positions}
        self._internal = frozenset(app.plan.internal_topics)
        self._sensor = environment.sensor
        if self._sensor.detailed:
            count_calls(replica.state)
        part = TaskPart(str(task), app.plan.partitions, self._sub.nodes)
        self._task = StreamTask(app.topology, app.config, part, replica.state, environment)
        in_order = sorted(positions, key=lambda tp: (self._logical[tp], tp.partition))
        idle_ms = int(app.config["max.task.idle.ms"])
        self.buffers = PartitionGroup({tp: positions[tp] for tp in in_order}, idle_ms, self._times)
        self._partition_times: dict[TopicPartition, int] = {}  # of what is buffered
        self._size = BatchSize(int(app.config["max.poll.records"]))
        self._tick_ms = int(app.config["penstock.tick.interval.ms"])
        self._ticks_at_ms = environment.start_ms() if self._sub.ticks else None
        # Single records go depth first, so that users' functions are called in Kafka's order; with caching a batch is
        # what is cached.
        self._depth_first = int(app.config["statestore.cache.max.bytes"]) == 0
        self._notes = ReplayNotes(app, task, replica, positions, environment.start_ms())

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
        self.took_s = time.perf_counter() - began
        self._size.note(count, self.took_s)
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
        changes = volumes_of_changes(self.replica.pending)
        began = time.perf_counter()
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
