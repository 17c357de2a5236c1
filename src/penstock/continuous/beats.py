"""The times from which a thread's commit intervals count."""

from __future__ import annotations

__all__ = ["Beats"]

_LONGEST_S = 1.0  # an interval that is longer than this is not shifted: commits rarely meet then
_GOLDEN = 0.618034  # multiples of it, modulo one, lie far apart, however many there are


class Beats:
    """Times at a distance of one commit interval, other ones for each thread of a machine.

    Threads that commit at the same moment wait for each other: for a core, for the broker, for the lock of an embedded
    log. They would go on to do so, as every interval begins where the one before has ended. So each takes its turn.

    Args:
        interval_s: The commit interval.
        thread: The name of the thread, which ends with its number.

    Example:
        >>> first, second = Beats(0.1, "thread-0"), Beats(0.1, "thread-1")
        >>> [round(each.nearest(7.33), 3) for each in (first, second)]
        [7.3, 7.362]
    """

    def __init__(self, interval_s: float, thread: str) -> None:
        number = thread.rpartition("-")[2]
        self._interval_s = interval_s if interval_s <= _LONGEST_S else 0.0
        self._first_s = (int(number) * _GOLDEN % 1 if number.isdecimal() else 0.0) * interval_s

    def nearest(self, now_s: float) -> float:
        """Return the nearest of these times, by the monotonic clock; the given time itself if the interval is long."""
        if not self._interval_s:
            return now_s
        return now_s - ((now_s - self._first_s + self._interval_s / 2) % self._interval_s - self._interval_s / 2)
