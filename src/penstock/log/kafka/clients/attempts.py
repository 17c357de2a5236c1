"""The retry policy of failed transactions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.base.backoff import Backoff
from penstock.log.kafka.error_codes import ErrorCategory
from penstock.log.kafka.failures import category_of, patience_for

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

__all__ = ["TransactionAttempts"]

_MOST_FENCED = 8
_FENCED_USUALLY = 3
_AFTER_FENCING = Backoff(0.15, 3.0, jitter=2 / 3)  # at random, so that two processes stop fencing each other
_FOR_A_LEADER = Backoff(0.15, 0.45, jitter=2 / 3)  # an election is over soon


class TransactionAttempts:
    """The failed attempts of one transaction.

    Patience counts from the first failure: after an attempt that takes longer than that there may still be another.

    Args:
        patience_s: The time for retries after the first failure.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._first: float | None = None
        self._fenced, self._is_fenced = 0, False
        self._pauses = 0

    def allow_retry(self, error: KafkaException) -> bool:
        """Count a failure, and return whether to try again."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        self._is_fenced = category_of(error) is ErrorCategory.FENCED
        self._fenced += self._is_fenced
        return self._fenced <= _MOST_FENCED and now - self._first <= patience_for(error, self._patience_s)

    @property
    def is_ordinary(self) -> bool:
        """Whether the failures are ordinary: a task that moves to another process fences the one before."""
        return self._is_fenced and self._fenced < _FENCED_USUALLY

    def pause_s(self) -> float:
        """Return the wait before the next attempt; the first that is fenced has none."""
        if self._is_fenced and self._fenced == 1:
            return 0.0
        self._pauses += 1
        return (_AFTER_FENCING if self._is_fenced else _FOR_A_LEADER).pause_s(self._pauses)
