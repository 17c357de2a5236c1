"""The trend of a lag: growing, falling or steady, and how fast."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Trend", "trend_of"]

_TREND_S = 60.0
_LEAST = 3  # points
_STEADY = 0.01  # of the lag a minute: less is not a trend


@dataclass(frozen=True, slots=True)
class Trend:
    """The movement of a lag: records a second, and a word for it: grows, falls, steady, unknown."""

    per_second: float
    word: str

    def until_none(self, lag: int | None) -> float | None:
        """Return the seconds until nothing waits; None if the lag does not fall.

        >>> Trend(-5.0, "falls").until_none(100), Trend(0.0, "steady").until_none(0)
        (20.0, 0.0)
        """
        if not lag:
            return 0.0
        return lag / -self.per_second if self.word == "falls" else None


def trend_of(points: Sequence[tuple[float, int]]) -> Trend:
    """Return how a lag has moved in the last minute, by least squares.

    Args:
        points: Times in seconds, oldest first, and the lag at each.

    >>> trend_of([(0, 10), (10, 20), (20, 30)])
    Trend(per_second=1.0, word='grows')
    >>> trend_of([(0, 500), (10, 500), (20, 500)]).word, trend_of([(0, 5)]).word
    ('steady', 'unknown')
    """
    recent = [point for point in points if point[0] > points[-1][0] - _TREND_S]
    if len(recent) < _LEAST:
        return Trend(0.0, "unknown")
    slope = _slope(recent)
    most = max(lag for _, lag in recent)
    if abs(slope) * 60 <= max(_STEADY * most, 1):
        return Trend(slope, "steady")
    return Trend(slope, "grows" if slope > 0 else "falls")


def _slope(points: Sequence[tuple[float, float]]) -> float:
    mean_x, mean_y = statistics.fmean(x for x, _ in points), statistics.fmean(y for _, y in points)
    width = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / width if width else 0.0
