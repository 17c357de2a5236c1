"""Offsets of Spark's source: their JSON, and the division of waiting records into batches, in their order.

A task takes the partition whose head has the smallest timestamp. So a record waits for all before it in its partition,
and its effective time is the latest timestamp up to it. A batch that ends at one effective time in all partitions holds
exactly the records that the task would have taken first. Any other end would let one topic run ahead of another, and
make records late that were not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.log.base import Span, TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Offsets", "PartitionBacklog", "SourceOffset", "batch_ends", "oldest_first"]

Times = Callable[[int, int], "tuple[NDArray[np.int64], NDArray[np.int64]]"]


class PartitionBacklog:
    """The waiting records of one topic partition by time; it reads only where an answer depends on single records.

    Args:
        start: The first offset.
        rows: The stored rows from there on: (next offset, smallest timestamp, largest timestamp).
        times: Returns the offsets and timestamps of the records in a range.
    """

    def __init__(self, start: int, rows: Sequence[tuple[int, int, int]], times: Times) -> None:
        self.start = start
        self._times = times
        self._nexts = [start, *(following for following, _, _ in rows)]
        self._read: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        earliest = [low for _, low, _ in rows]
        latest = [high for _, _, high in rows]
        if rows:  # the first row may begin in the batch before
            _, stamps = times(start, self._nexts[1])
            earliest[0], latest[0] = (int(stamps[0]), int(stamps.max())) if len(stamps) else (earliest[0], latest[0])
        self._latest: NDArray[np.int64] = np.maximum.accumulate(np.array(latest, np.int64))
        before = np.concatenate([np.array([-(1 << 62)]), self._latest[:-1]]) if rows else self._latest
        self._earliest: NDArray[np.int64] = np.maximum(before, np.array(earliest, np.int64))

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        return self._nexts[-1]

    @property
    def time_bounds(self) -> tuple[int, int]:
        """The range of effective times: no record is earlier than the first or later than the second."""
        return int(self._earliest[0]), int(self._latest[-1])

    def offset_after(self, time: int) -> int:
        """Return the offset behind the last record with at most this effective time."""
        row = int(np.searchsorted(self._latest, time, "right"))
        if row == len(self._latest) or self._earliest[row] > time:
            return self._nexts[row]
        if row not in self._read:
            self._read[row] = self._times(self._nexts[row], self._nexts[row + 1])
        offsets, stamps = self._read[row]
        late = stamps > time
        return int(offsets[np.argmax(late)]) if late.any() else self._nexts[row + 1]


def oldest_first(
    backlogs: Mapping[TopicPartition, PartitionBacklog], budget: int, most: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Count the offsets of each partition among the first ``budget`` of all, in the order in which a task takes them.

    Args:
        backlogs: The waiting records of the partitions, none of them empty.
        budget: The most offsets of all partitions together, at least 1.
        most: The most offsets of each partition; one that reaches its limit holds back the others.
    """
    taken = {tp: line.end - line.start for tp, line in backlogs.items()}
    if sum(taken.values()) <= budget and all(taken[tp] <= most[tp] for tp in backlogs):
        return taken

    def at(time: int) -> dict[TopicPartition, int]:
        return {tp: line.offset_after(time) - line.start for tp, line in backlogs.items()}

    def fits(counts: Mapping[TopicPartition, int]) -> bool:
        return sum(counts.values()) <= budget and all(counts[tp] <= most[tp] for tp in backlogs)

    low = min(line.time_bounds[0] for line in backlogs.values()) - 1  # nothing: that fits
    high = max(line.time_bounds[1] for line in backlogs.values())  # everything: that does not
    while high - low > 1:
        middle = (low + high) // 2
        if fits(at(middle)):
            low = middle
        else:
            high = middle
    taken = at(low)
    left = budget - sum(taken.values())
    for tp, count in sorted(at(high).items()):  # of the same time, the first topic's records come first
        allowed = min(count, most[tp], taken[tp] + left)
        left -= allowed - taken[tp]
        taken[tp] = allowed
        if allowed < count:
            break
    return taken


Offsets = Mapping[TopicPartition, int]
BacklogsOf = Callable[[Mapping[TopicPartition, Span]], Mapping[TopicPartition, PartitionBacklog]]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The end of a batch, as Spark notes it before the batch runs.

    Attributes:
        ends: The offset behind the batch, by partition.
        tick: The last tick of the clock.
        starts: The first offset, of partitions that do not begin at the end of the batch before: new ones, those with a
            group reset, those whose next records retention has removed. It is noted, so a batch that runs again reads
            the same.
        lost: The number of offsets that retention has removed, of the latter.
        resets: The number of the last group reset that was applied (see `start_positions`).
        ids: The ids of the topics that the offsets belong to, as far as the log knows them.

    Example:
        >>> a = TopicPartition("orders", 0)
        >>> SourceOffset({a: 17}).to_json()
        {'topics': {'orders': {'0': 17}}, 'tick': 0}
        >>> SourceOffset.of(SourceOffset({a: 17}, starts={a: 3}, resets=2).to_json()).starts == {a: 3}
        True
    """

    ends: Offsets = field(default_factory=dict)
    tick: int = 0
    starts: Offsets = field(default_factory=dict)
    lost: Offsets = field(default_factory=dict)
    resets: int = 0
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Make a JSON document, without what is empty."""
        document: dict[str, Any] = {"topics": _nested(self.ends), "tick": self.tick}
        document |= {name: _nested(at) for name, at in (("starts", self.starts), ("lost", self.lost)) if at}
        document |= {"moves": self.resets} if self.resets else {}
        return document | ({"ids": dict(sorted(self.ids.items()))} if self.ids else {})

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SourceOffset:
        """Read such a document."""
        topics, starts, lost = (_flat(document.get(name, {})) for name in ("topics", "starts", "lost"))
        return cls(topics, document["tick"], starts, lost, document.get("moves", 0), document.get("ids", {}))


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return topics


def _flat(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(t, int(p)): offset for t, parts in topics.items() for p, offset in parts.items()}


def batch_ends(
    start: Offsets, end: Offsets, most: int, most_per_partition: int, backlogs: BacklogsOf | None = None
) -> dict[TopicPartition, int]:
    """Compute the ends of a batch: at most so many records, shared in proportion to those waiting per partition number.

    Topics with the same partition number belong to tasks that take the older record first. So their common share goes
    to the oldest records; otherwise a stream would run ahead of the table that it joins.

    Args:
        start: The offsets at which the batch starts; a partition that is missing starts at 0.
        end: The ends of the log.
        most: The most records of the batch.
        most_per_partition: The most records of one partition.
        backlogs: Returns the waiting records by time, for spans of partitions. None: each partition has its own share,
            whatever the times.

    Example:
        >>> a, b = TopicPartition("t", 0), TopicPartition("t", 1)
        >>> batch_ends({a: 0, b: 0}, {a: 300, b: 100}, 200, 1000) == {a: 150, b: 50}
        True
    """
    waiting = {tp: min(stop - start.get(tp, 0), most_per_partition) for tp, stop in end.items()}
    waiting = {tp: n for tp, n in waiting.items() if n > 0}
    total = sum(waiting.values())
    whole = total <= most and all(start.get(tp, 0) + n == end[tp] for tp, n in waiting.items())
    share = 1.0 if total <= most else most / total
    taken = {tp: n if share == 1.0 else max(1, int(n * share)) for tp, n in waiting.items()}
    if not whole and backlogs is not None:
        numbers: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in waiting:
            numbers[tp.partition].append(tp)
        budgets = {n: sum(taken[tp] for tp in group) for n, group in numbers.items() if len(group) > 1}
        lines = backlogs({tp: Span(start.get(tp, 0), end[tp], budgets[n]) for n in budgets for tp in numbers[n]})
        for number, budget in budgets.items():
            taken |= oldest_first({tp: lines[tp] for tp in numbers[number]}, budget, waiting)
    return {tp: start.get(tp, 0) + taken.get(tp, 0) for tp in end}
