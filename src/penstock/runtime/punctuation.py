"""Schedules of stream-time and wall-clock punctuation, and the queue of Kafka Streams that orders them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["PriorityQueue", "PunctuationQueue", "Schedule"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Schedule:
    """One scheduled callback of one processor, and Kafka's ``Cancellable`` for it."""

    node: str
    next_ms: int
    interval_ms: int
    callback: Callable[[int], None]
    meta_name: str
    cancelled: bool = field(default=False)

    def cancel(self) -> None:
        """Cancel the schedule: Kafka's ``Cancellable.cancel``."""
        self.cancelled = True

    def advance(self, now_ms: int) -> None:
        """Move to the next multiple of the interval after ``now_ms``; those that were missed are skipped."""
        following = self.next_ms + self.interval_ms
        if now_ms >= following:
            following = self.next_ms + ((now_ms - self.next_ms) // self.interval_ms + 1) * self.interval_ms
        self.next_ms = following


class PunctuationQueue:
    """The schedules of one kind of time in a task."""

    def __init__(self) -> None:
        self._queue: PriorityQueue[Schedule] = PriorityQueue(lambda schedule: schedule.next_ms)
        self.is_held = False  # then nothing is due

    def add(self, schedule: Schedule) -> None:
        self._queue.add(schedule)

    @property
    def first_ms(self) -> int | None:
        """The time of the next punctuation of any processor."""
        first = self._queue.peek()
        return None if first is None else first.next_ms

    def nodes(self) -> set[str]:
        """Return the processors that have a schedule."""
        return {s.node for s in self._queue.entries() if not s.cancelled}

    def next_ms(self, node: str) -> int | None:
        """Return the time of the processor's next punctuation."""
        if self.is_held:
            return None
        return min((s.next_ms for s in self._queue.entries() if s.node == node and not s.cancelled), default=None)

    def fire(self, now_ms: int, run: Callable[[Schedule], None], node: str | None = None) -> None:
        """Run all schedules (of the node, if one is named) that are due; those that are not cancelled come again."""
        while not self.is_held and (schedule := self._take(now_ms, node)) is not None:
            if schedule.cancelled:
                continue
            run(schedule)
            if not schedule.cancelled:
                schedule.advance(now_ms)
                self._queue.add(schedule)

    def _take(self, now_ms: int, node: str | None) -> Schedule | None:
        if node is None:
            first = self._queue.peek()
            return self._queue.poll() if first is not None and first.next_ms <= now_ms else None
        entries = self._queue.entries()
        due = [s for s in entries if s.node == node and s.next_ms <= now_ms]
        if not due:
            return None
        schedule = min(due, key=lambda s: s.next_ms)
        rest: PriorityQueue[Schedule] = PriorityQueue(lambda s: s.next_ms)
        for entry in entries:
            if entry is not schedule:
                rest.add(entry)
        self._queue = rest
        return schedule


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
