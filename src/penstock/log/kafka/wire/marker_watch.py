"""Whether the brokers have marked a producer's last transaction before its next one begins.

A broker that gets records of the next transaction too early tries again only after 20 ms
(``add.partitions.to.txn.retry.backoff.ms``). To ask the coordinator costs a request a transaction. So it is asked while
it is not known how fast these brokers are; when many answers in a row have said that the markers were there, only now
and then; and again after one that said otherwise, or when writes often take as long as such a retry.
"""

from __future__ import annotations

import time

__all__ = ["MarkerWatch"]

_MARKED_S = 0.03  # after so long a transaction is marked unless the brokers are in trouble
_RETRIED_S = 0.015
_MANY_RETRIED = 20  # points: a slow write has five, another one takes one away
_CALM = 100  # answers in a row
_ASK_EVERY = 50  # transactions


class MarkerWatch:
    """Counts how the last transactions went.

    >>> watch = MarkerWatch()
    >>> watch.is_worth_asking()  # no transaction has ended
    False
    >>> watch.ended()
    >>> watch.is_worth_asking()
    True
    """

    def __init__(self) -> None:
        self._ended_s = float("-inf")
        self._calm = 0
        self._unasked = 0
        self._slow = 0

    def ended(self) -> None:
        """Note that the coordinator has just answered the end of a transaction."""
        self._ended_s = time.monotonic()

    @property
    def is_recent(self) -> bool:
        """Whether the last transaction ended so short a time ago that its markers may still be on their way."""
        return time.monotonic() - self._ended_s <= _MARKED_S

    def is_worth_asking(self) -> bool:
        """Return whether to ask for the state of the last transaction before the next one is written."""
        if not self.is_recent:
            return False
        self._unasked = 0 if self._calm < _CALM else (self._unasked + 1) % _ASK_EVERY
        return not self._unasked

    def answered(self, *, is_marked: bool) -> None:
        """Note the answer to the question."""
        self._calm = self._calm + 1 if is_marked else 0

    def written(self, seconds: float) -> None:
        """Note how long the records and offsets of a transaction took; one slow write alone says little."""
        self._slow = self._slow + 5 if seconds >= _RETRIED_S else max(0, self._slow - 1)
        if self._slow >= _MANY_RETRIED:
            self._calm = self._slow = 0
