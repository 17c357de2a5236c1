"""Which records of several topic partitions come first, when one task reads them all and a batch cannot take all.

A task takes the partition whose head has the smallest timestamp. So a record waits for all before it in its partition,
and counts as late as the latest of them; and a batch that ends at one such time in all partitions holds exactly the
records that the task would have taken first. Ending anywhere else would make the one topic run ahead of the other, and
records late that were not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Timeline", "oldest_first"]

Times = Callable[[int, int], "tuple[NDArray[np.int64], NDArray[np.int64]]"]


class Timeline:
    """The waiting records of one topic partition by time; reads only where the answer depends on single records.

    Args:
        start: The first offset.
        rows: The stored rows from there on: (next offset, smallest timestamp, largest timestamp).
        times: Gives the offsets and timestamps of the records in a range.
    """

    def __init__(self, start: int, rows: Sequence[tuple[int, int, int]], times: Times) -> None:
        self.start = start
        self._times = times
        self._nexts = [start, *(following for following, _, _ in rows)]
        self._read: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        earliest = [low for _, low, _ in rows]
        latest = [high for _, _, high in rows]
        if rows:  # its beginning may be part of the batch before
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
    def bounds(self) -> tuple[int, int]:
        """No record counts earlier than the one or later than the other."""
        return int(self._earliest[0]), int(self._latest[-1])

    def upto(self, time: int) -> int:
        """The offset behind the last record that counts as this early."""
        row = int(np.searchsorted(self._latest, time, "right"))
        if row == len(self._latest) or self._earliest[row] > time:
            return self._nexts[row]
        if row not in self._read:
            self._read[row] = self._times(self._nexts[row], self._nexts[row + 1])
        offsets, stamps = self._read[row]
        late = stamps > time
        return int(offsets[np.argmax(late)]) if late.any() else self._nexts[row + 1]


def oldest_first(
    lines: Mapping[TopicPartition, Timeline], budget: int, most: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """How many offsets of each partition are the first ``budget`` of all, in the order in which a task takes them.

    Args:
        lines: The partitions, none of them empty.
        budget: Of all together, at least 1.
        most: Of each; who would go beyond it holds back the others.
    """
    taken = {tp: line.end - line.start for tp, line in lines.items()}
    if sum(taken.values()) <= budget and all(taken[tp] <= most[tp] for tp in lines):
        return taken

    def at(time: int) -> dict[TopicPartition, int]:
        return {tp: line.upto(time) - line.start for tp, line in lines.items()}

    def fits(counts: Mapping[TopicPartition, int]) -> bool:
        return sum(counts.values()) <= budget and all(counts[tp] <= most[tp] for tp in lines)

    low = min(line.bounds[0] for line in lines.values()) - 1  # nothing: that fits
    high = max(line.bounds[1] for line in lines.values())  # everything: that does not
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
