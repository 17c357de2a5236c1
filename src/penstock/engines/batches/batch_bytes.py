"""The limit of a batch in bytes: of large records, fewer are admitted than the limit of records would allow."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from penstock.engines.offsets.offsets import Offsets

__all__ = ["ByteLimit"]

Ranges = Mapping[TopicPartition, tuple[int, int]]
Sizes = Callable[[Ranges], Mapping[TopicPartition, int]]

_LARGE_BYTES = 1 << 20  # of a record: as much as a topic takes by default
_LOOK_S, _LONG_S = 2.0, 60.0
_SAFETY = 16
_TRIES = 8


class ByteLimit:
    """The limit of a batch in bytes.

    Args:
        most_bytes: The most bytes of a batch.
        sizes: Estimates the bytes of the records of ranges.
        clock: Returns the time in seconds.
    """

    def __init__(self, most_bytes: int, sizes: Sizes, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = most_bytes
        self._sizes = sizes
        self._clock = clock
        self._looked: float | None = None
        self._record_bytes = 0.0  # mean of the partition with the largest records, when sizes were asked for last

    def admitted(
        self, begin: Offsets, ends: dict[TopicPartition, int], admit: Callable[[int], dict[TopicPartition, int]]
    ) -> dict[TopicPartition, int]:
        """Return the ends of a batch within the limit, with at least one record.

        If not every partition may have a record, the positions decide which ones come first, so none waits for long.

        Args:
            begin: The offsets at which the batch begins.
            ends: The offsets at which it would end by the limit of records.
            admit: Returns the ends of a batch of at most so many records, but at least one of each partition.
        """
        for _ in range(_TRIES):
            ranges = {tp: (begin[tp], end) for tp, end in ends.items() if end > begin[tp]}
            records = sum(end - start for start, end in ranges.values())
            if self._is_surely_small(records):
                return ends
            sizes = self._sizes(ranges)
            self._looked = self._clock()
            self._record_bytes = max(size / (ranges[tp][1] - ranges[tp][0]) for tp, size in sizes.items())
            total = sum(sizes.values())
            if total <= self._most_bytes:
                return ends
            if records <= len(ranges):
                return self._some(begin, ends, sizes)
            ends = admit(max(1, min(records - 1, int(records * self._most_bytes / total))))
        return ends

    def _is_surely_small(self, records: int) -> bool:
        """Return whether the records fit unless they are far larger than earlier ones; then no sizes are needed."""
        age = None if self._looked is None else self._clock() - self._looked
        if not records:
            return True
        if age is None or age > _LONG_S:
            return False
        if records * max(_LARGE_BYTES, self._record_bytes) <= self._most_bytes:
            return True
        return age < _LOOK_S and records * self._record_bytes * _SAFETY <= self._most_bytes

    def _some(self, begin: Offsets, ends: Offsets, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Admit a record of each of as many partition numbers as fit, in all topics of a number, as tasks join them."""
        numbers = sorted({tp.partition for tp in sizes})
        first = sum(begin[tp] for tp in sizes) % len(numbers)
        taken: set[int] = set()
        left = self._most_bytes
        for number in [*numbers[first:], *numbers[:first]]:
            left -= sum(size for tp, size in sizes.items() if tp.partition == number)
            if taken and left < 0:
                break
            taken.add(number)
        return {tp: end if tp.partition in taken else begin[tp] for tp, end in ends.items()}
