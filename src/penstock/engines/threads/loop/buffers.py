"""The records that a task has fetched and not yet processed: Kafka's ``PartitionGroup``.

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

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.log.record_bytes import record_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.log.base import Fetched, TopicPartition

__all__ = ["NEVER_WAIT", "PartitionGroup", "Taken"]

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
