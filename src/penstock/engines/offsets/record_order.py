"""The order of records from several topic partitions that one task reads, when a batch cannot hold all of them.

A task takes the partition whose head has the smallest timestamp. So a record waits for all before it in its partition,
and its effective time is the latest timestamp up to it. A batch that ends at one effective time in all partitions holds
exactly the records that the task would have taken first. Any other end would let one topic run ahead of another, and
make records late that were not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PartitionBacklog", "oldest_first"]

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
