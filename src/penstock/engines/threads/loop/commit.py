"""The commits of a stream thread: what the open one holds, and when the next one is due (``commit.interval.ms``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import ProductionError

if TYPE_CHECKING:
    from penstock.engines.threads.outputs import RefusedRecords
    from penstock.log.base import OffsetAndMetadata, TopicPartition
    from penstock.log.thread_clients import CommitProducer, Part

__all__ = ["Commit", "CommitSchedule"]

_LONGEST_S = 1.0  # an interval that is longer than this is not shifted: commits rarely meet then
_EXACT = 0.01  # a part of an interval: a commit that comes so early has come in time
_GOLDEN = 0.618034  # multiples of it, modulo one, lie far apart, however many there are


class Commit:
    """The open commit of a thread, and then the next: the records of its tasks, and the answer to those refused.

    Args:
        producer: The thread's producer.
        refused: The application's answer to refused records.
    """

    def __init__(self, producer: CommitProducer, refused: RefusedRecords) -> None:
        self._producer = producer
        self._refused = refused
        self._sent_by: list[str] = []  # the task of each part that waits in the producer

    @property
    def pending_bytes(self) -> int:
        """The size of the records that wait for a commit."""
        return self._producer.pending_bytes

    def send(self, parts: Sequence[Part], task: str) -> None:
        """Send the outputs of a task: exactly once with the next commit, at least once at once.

        Raises:
            ProductionError: The log refuses records, and production.exception.handler says fail.
            FencedError: A newer thread or instance has taken over.
        """
        tasks = [task] * len(parts)
        while True:
            try:
                self._producer.send(parts)
            except ProductionError as error:
                parts, tasks = [*self._producer.collected(), *parts], [*self._sent_by, *tasks]
                parts, tasks = self._refused.without(parts, tasks, error)
                self._producer.replace(())
                self._sent_by = []
            else:
                waiting = len(self._producer.collected())
                self._sent_by = [*self._sent_by, *tasks][-waiting:] if waiting else []
                return

    def flush(self) -> None:
        """At least once: wait until the log has taken all outputs; see `send`."""
        while self._producer.collected():
            self.send((), "")

    def collect(self, parts: Sequence[Part], task: str) -> None:
        """Send changelog records of a task with the next commit."""
        self._sent_by += [task] * self._producer.collect(parts)

    def complete(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, int]:
        """Commit what has been sent, with these offsets; return the offset after the last record of each partition.

        Raises:
            ProductionError: The log refuses records, and production.exception.handler says fail.
            FencedError: A newer thread or instance has taken over.
        """
        while True:
            try:
                following = self._producer.commit(offsets)
            except ProductionError as error:
                parts, self._sent_by = self._refused.without(self._producer.collected(), self._sent_by, error)
                self._producer.replace(parts)
            else:
                self._sent_by = []
                return following


class CommitSchedule:
    """Times at a distance of one commit interval, other ones for each thread of a machine.

    Threads that commit at the same moment wait for each other: for a core, for the broker, for the lock of an embedded
    log. They would go on to do so, as every interval begins where the one before has ended. So each takes its turn.

    Args:
        interval_s: The commit interval.
        thread: The name of the thread, which ends with its number.

    Example:
        >>> first, second = CommitSchedule(0.1, "thread-0"), CommitSchedule(0.1, "thread-1")
        >>> [round(each.since(7.33), 3) for each in (first, second)]
        [7.3, 7.296]
    """

    def __init__(self, interval_s: float, thread: str) -> None:
        number = thread.rpartition("-")[2]
        self._interval_s = interval_s if interval_s <= _LONGEST_S else 0.0
        self._first_s = (int(number) * _GOLDEN % 1 if number.isdecimal() else 0.0) * interval_s

    def since(self, now_s: float) -> float:
        """Return the time, by the monotonic clock, from which the interval after a commit at ``now_s`` counts.

        It ends with the thread's next turn. If that is less than half an interval away, as after a silence or a late
        commit, it ends half-way to the turn after that one, so that no interval is longer than it should be.
        """
        if not self._interval_s:
            return now_s
        late_s = (now_s - self._first_s) % self._interval_s
        early_s = self._interval_s - late_s
        if early_s < _EXACT * self._interval_s:
            return now_s + early_s
        return now_s - (late_s if late_s <= self._interval_s / 2 else late_s / 2)
