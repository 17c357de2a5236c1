"""Values of the last samples, from which means, extremes and rates are computed: Kafka's ``SampledStat``."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

__all__ = ["Samples"]


@dataclass(slots=True)
class _Sample:
    """The values that were recorded in one window of time."""

    start_ms: int
    last_ms: int
    count: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf


class Samples:
    """The last samples of a measured value.

    Args:
        window_ms: The length of a sample: ``metrics.sample.window.ms``.
        number: The number of samples that are kept: ``metrics.num.samples``.

    >>> samples = Samples(30_000, 2)
    >>> samples.record(0, total=30.0, count=3, low=5.0, high=15.0)
    >>> samples.mean(0), samples.high(0), samples.rate(0), samples.rate_of_calls(0)
    (10.0, 15.0, 1.0, 0.1)
    >>> samples.mean(60_000)
    nan
    """

    __slots__ = ("_number", "_samples", "_window_ms")

    def __init__(self, window_ms: int, number: int) -> None:
        self._window_ms = window_ms
        self._number = number
        self._samples: deque[_Sample] = deque(maxlen=number + 1)  # one more, which overlaps with the oldest window

    def record(self, now_ms: int, total: float, count: int, low: float, high: float) -> None:
        """Add values by their sum, number, minimum and maximum."""
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._window_ms:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[-1]
        sample.last_ms = now_ms
        sample.count += count
        sample.total += total
        sample.low = min(sample.low, low)
        sample.high = max(sample.high, high)

    def mean(self, now_ms: int) -> float:
        """Return the mean of the values; NaN if there are none."""
        fresh = self._fresh(now_ms)
        count = sum(sample.count for sample in fresh)
        return sum(sample.total for sample in fresh) / count if count else math.nan

    def low(self, now_ms: int) -> float:
        """Return the smallest value; NaN if there are none."""
        return min((s.low for s in self._fresh(now_ms) if s.count), default=math.nan)

    def high(self, now_ms: int) -> float:
        """Return the largest value; NaN if there are none."""
        return max((s.high for s in self._fresh(now_ms) if s.count), default=math.nan)

    def rate(self, now_ms: int) -> float:
        """Return the sum of the values a second."""
        fresh = self._fresh(now_ms)
        return sum(sample.total for sample in fresh) / self._seconds(fresh, now_ms)

    def rate_of_calls(self, now_ms: int) -> float:
        """Return the number of the values a second."""
        fresh = self._fresh(now_ms)
        return sum(sample.count for sample in fresh) / self._seconds(fresh, now_ms)

    def _fresh(self, now_ms: int) -> list[_Sample]:
        return [s for s in self._samples if now_ms - s.last_ms < self._number * self._window_ms]

    def _seconds(self, fresh: list[_Sample], now_ms: int) -> float:
        """Return the time that a rate is taken over: at least all windows but the present one, as in Kafka."""
        elapsed = now_ms - fresh[0].start_ms if fresh else 0
        missing = max(0, self._number - 1 - elapsed // self._window_ms)
        return max(elapsed + missing * self._window_ms, self._window_ms) / 1000
