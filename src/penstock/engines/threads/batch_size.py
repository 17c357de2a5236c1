"""The number of records that a task processes at once: many when it is behind, few when its functions are slow."""

from __future__ import annotations

__all__ = ["BatchSize"]

_FIRST_RECORDS = 1_000
_GROWTH, _SHRINKING = 32, 8  # the largest steps
_AIM_S = 0.5  # the time of a batch: short enough to commit, report and stop in between


class BatchSize:
    """The size of a task's next batch.

    Larger batches take less time a record, and write fewer changes of the same key. But nothing is committed within
    one, so the size follows the measured time of a record.

    Args:
        most: ``max.poll.records``.

    Attributes:
        records: The most records of the next batch.

    >>> size = BatchSize(20_000)
    >>> size.note(1_000, 0.01)
    >>> size.records
    20000
    >>> size.note(20_000, 4.0)
    >>> size.records
    2500
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.records = min(most, _FIRST_RECORDS)

    def note(self, count: int, seconds: float) -> None:
        """Note the size and the time of a batch."""
        if not count:
            return
        wanted = int(count * _AIM_S / max(seconds, 1e-9))
        if wanted < count:
            self.records = max(1, wanted, self.records // _SHRINKING)  # one slow batch may have had to wait
        elif count >= self.records // 2:  # a limit of time may cut it a little shorter
            self.records = min(self._most, wanted, self.records * _GROWTH)
