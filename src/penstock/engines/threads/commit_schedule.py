"""The times from which a thread's commit intervals count."""

from __future__ import annotations

__all__ = ["Beats"]

_LONGEST_S = 1.0  # an interval that is longer than this is not shifted: commits rarely meet then
_EXACT = 0.01  # a part of an interval: a commit that comes so early has come in time
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
