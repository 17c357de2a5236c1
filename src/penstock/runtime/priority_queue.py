"""A binary heap that decides ties as `java.util.PriorityQueue` does.

Kafka Streams keeps the queues of a task's partitions, and its punctuation schedules, in such a queue. The order of two
equal heads is not specified anywhere; it follows from the moves of the heap's entries, so the same order needs the same
moves. Python's ``heapq`` makes others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["PriorityQueue"]

T = TypeVar("T")


class PriorityQueue(Generic[T]):
    """Entries by ``rank(entry)``, smallest first. An entry's rank may change only while it is outside."""

    def __init__(self, rank: Callable[[T], int]) -> None:
        self._rank = rank
        self._heap: list[T] = []

    def __len__(self) -> int:
        return len(self._heap)

    def peek(self) -> T | None:
        """Return the first entry, which stays."""
        return self._heap[0] if self._heap else None

    def add(self, entry: T) -> None:
        """Put the entry at the end and let it rise while its rank is smaller than its parent's."""
        heap, rank = self._heap, self._rank
        heap.append(entry)
        at, mine = len(heap) - 1, rank(entry)
        while at > 0:
            parent = (at - 1) >> 1
            if mine >= rank(heap[parent]):
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = entry

    def poll(self) -> T | None:
        """Take the first entry out; the last one takes its place and sinks."""
        heap, rank = self._heap, self._rank
        if not heap:
            return None
        first, entry = heap[0], heap.pop()
        size = len(heap)
        if not size:
            return first
        at, mine = 0, rank(entry)
        while at < size >> 1:
            child = 2 * at + 1
            if child + 1 < size and rank(heap[child]) > rank(heap[child + 1]):
                child += 1
            if mine <= rank(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = entry
        return first

    def entries(self) -> list[T]:
        """Return all entries, in no particular order."""
        return list(self._heap)
