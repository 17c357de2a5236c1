"""How far an application is behind in each partition: in records, in seconds, and which way that goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LagWatch", "PartitionLag"]

_TREND_MS = 60_000
_AGE_EVERY_MS = 5_000
_MOST_AGES = 32  # partitions whose first waiting record is looked up at a time


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one partition.

    Attributes:
        topic: The topic.
        partition: The partition's number.
        position: The offset of the next record to read.
        end: The offset after the newest record.
        seconds: The age of the first record that waits, by its timestamp; 0 when none waits, None while unknown.
        trend: By how many records a second the lag has grown over the last minute; negative: it falls.
        as_of_ms: When that was, in milliseconds since 1970.

    >>> lag = PartitionLag("orders", 3, 90, 100, 2.5, -1.0, 1_700_000_000_000)
    >>> lag.records, lag.document()["seconds"]
    (10, 2.5)
    """

    topic: str
    partition: int
    position: int
    end: int
    seconds: float | None
    trend: float
    as_of_ms: int

    @property
    def records(self) -> int:
        """The number of offsets that wait: Kafka's ``records-lag``."""
        return max(0, self.end - self.position)

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "position": self.position,
            "end": self.end,
            "records": self.records,
            "seconds": self.seconds,
            "trend": self.trend,
            "as_of_ms": self.as_of_ms,
        }


class LagWatch:
    """The lags of an application's partitions, from looks at their ends.

    Args:
        clock: The wall clock, in milliseconds.

    >>> now = [1_000_000]
    >>> watch = LagWatch(lambda: now[0])
    >>> watch.look({"orders-0": 5}, {"orders-0": 5}, lambda topic, partition, offset: None)
    >>> now[0] += 10_000
    >>> watch.look({"orders-0": 5}, {"orders-0": 25}, lambda topic, partition, offset: 1_008_000)
    >>> [(lag.records, lag.seconds, lag.trend) for lag in watch.lags()]
    [(20, 2.0, 2.0)]
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._lags: dict[str, PartitionLag] = {}
        self._records: dict[str, deque[tuple[int, int]]] = {}  # (time, lag) of the last minute
        self._first: dict[str, tuple[int, int, int | None]] = {}  # when looked up, offset, time of the record there

    def look(
        self,
        positions: Mapping[str, int],
        ends: Mapping[str, int],
        time_of: Callable[[str, int, int], int | None],
    ) -> None:
        """Note positions and ends, both by ``<topic>-<partition>``; partitions without a position are left out.

        Args:
            positions: The offset of the next record.
            ends: The offset after the newest record.
            time_of: Returns the timestamp of the first record from an offset on; None if there is none. It is asked
                for partitions that are behind, every five seconds.
        """
        now = self._clock()
        asked = 0
        for at in sorted(ends.keys() & positions.keys()):
            topic, _, number = at.rpartition("-")
            position, lag = positions[at], max(0, ends[at] - positions[at])
            if lag and asked < _MOST_AGES and self._is_due(at, position, now):
                asked += 1
                self._first[at] = (now, position, time_of(topic, int(number), position))
            seconds = self._seconds(at, position, now) if lag else 0.0
            trend = self._trend(at, lag, now)
            self._lags[at] = PartitionLag(topic, int(number), position, ends[at], seconds, trend, now)

    def lags(self) -> tuple[PartitionLag, ...]:
        """Return the lag of each partition as of the last look."""
        return tuple(self._lags.values())

    def of(self, at: str) -> PartitionLag:
        """Return the lag of ``<topic>-<partition>``."""
        return self._lags[at]

    def _is_due(self, at: str, position: int, now: int) -> bool:
        looked, offset, _ = self._first.get(at, (0, -1, None))
        return offset != position and now - looked >= _AGE_EVERY_MS

    def _seconds(self, at: str, position: int, now: int) -> float | None:
        _, offset, time_ms = self._first.get(at, (0, -1, None))
        if time_ms is None or offset > position:
            return None
        return max(0, now - time_ms) / 1000

    def _trend(self, at: str, lag: int, now: int) -> float:
        past = self._records.setdefault(at, deque())
        past.append((now, lag))
        while past[0][0] < now - _TREND_MS:
            past.popleft()
        began, first = past[0]
        return (lag - first) * 1000 / (now - began) if now > began else 0.0
