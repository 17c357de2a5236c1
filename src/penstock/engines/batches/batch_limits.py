"""Throttling: the pauses between batches and their size, by the settings of reading."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engines.offsets.reading_settings import ReadSettings

__all__ = ["Throttle"]

_LEAST = 1_000  # records: with fewer, the fixed cost of a batch dominates
_GROWTH = 1.5


class Throttle:
    """A throttle of batches by the time that earlier ones took; a batch has ended when the next one is asked for.

    Args:
        reading: The settings of reading.
        clock: Returns the time in seconds.

    Example:
        >>> from penstock.engines.offsets.reading_settings import ReadSettings
        >>> times = iter([0.0, 4.0])
        >>> throttle = Throttle(ReadSettings(max_batch_ms=1000), lambda: next(times))
        >>> throttle.planned(100_000)
        >>> throttle.ended()
        >>> throttle.most(500_000)
        25000
    """

    def __init__(self, reading: ReadSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._reading = reading
        self._clock = clock
        self._planned = 0
        self._since = 0.0
        self._rests_until = 0.0
        self._waits_since: float | None = None
        self._limit: int | None = None

    def ended(self) -> None:
        """Note that the batch that was planned last, if any, has ended."""
        if not self._planned:
            return
        now = self._clock()
        wanted = self._reading.max_batch_ms / 1000
        if wanted:
            factor = min(wanted / max(now - self._since, 1e-3), _GROWTH)
            if factor < 1 or self._limit is not None:
                least = min(_LEAST, self._reading.max_records_per_batch)
                self._limit = max(least, int((self._limit or self._planned) * factor))
                if self._limit >= self._reading.max_records_per_batch:
                    self._limit = None
        self._planned = 0
        self._rests_until = now + self._reading.pause_ms / 1000

    def rest_s(self) -> float:
        """Return the rest of the pause between two batches, in seconds."""
        return max(0.0, self._rests_until - self._clock()) if self._reading.pause_ms else 0.0

    def waits(self, records: int) -> bool:
        """Return whether the next batch waits for more than these records."""
        if records >= self._reading.min_records_per_batch or not self._reading.max_wait_ms or not records:
            self._waits_since = None
            return False
        now = self._clock()
        if self._waits_since is None:
            self._waits_since = now
        if now - self._waits_since < self._reading.max_wait_ms / 1000:
            return True
        self._waits_since = None
        return False

    def most(self, limit: int) -> int:
        """Return the most records of the next batch."""
        return limit if self._limit is None else min(limit, self._limit)

    def planned(self, records: int) -> None:
        """Note that a batch of so many records begins."""
        if records:
            self._planned = records
            self._since = self._clock() if self._reading.max_batch_ms else 0.0
