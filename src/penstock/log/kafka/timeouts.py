"""Time-outs of requests, and of transactions: long enough for their records on a slow connection."""

from __future__ import annotations

from penstock.config import CONFIG_DEFS

__all__ = ["REQUEST_TIMEOUT_MS", "TransactionTimeouts"]

REQUEST_TIMEOUT_MS: int = CONFIG_DEFS["request.timeout.ms"].default

_SLOW_BYTES_PER_S = 256 * 1024
_MOST_MS = 900_000  # the brokers' transaction.max.timeout.ms by default


class TransactionTimeouts:
    """The time-outs of one cluster's transactions.

    Each step doubles the time-out, so that few producers have to change theirs.

    Args:
        least_ms: The time-out of small transactions; ``producer.transaction.timeout.ms``.
        most_ms: The longest time-out to request; lowered once brokers have refused it.

    Example:
        >>> timeouts = TransactionTimeouts(30_000)
        >>> timeouts.needed(1_000), timeouts.needed(20_000_000)
        (30000, 120000)
        >>> timeouts.refused(120_000), timeouts.allowed(120_000)
        (True, 60000)
    """

    def __init__(self, least_ms: int, most_ms: int = _MOST_MS) -> None:
        self.least_ms = least_ms
        self.most_ms = max(least_ms, most_ms)

    def needed(self, size_bytes: int) -> int:
        """Return the time-out for a transaction of this size."""
        timeout_ms = self.least_ms
        # The least time-out covers the overhead and a few records.
        while timeout_ms < self.most_ms and timeout_ms < 1000 * size_bytes / _SLOW_BYTES_PER_S + self.least_ms / 2:
            timeout_ms *= 2
        return self.allowed(timeout_ms)

    def longer(self, timeout_ms: int) -> int | None:
        """Return the next longer time-out; None if there is none."""
        next_ms = self.allowed(2 * timeout_ms)
        return next_ms if next_ms > timeout_ms else None

    def allowed(self, timeout_ms: int) -> int:
        """Return this time-out, or the longest that brokers allow."""
        return min(timeout_ms, self.most_ms)

    def refused(self, timeout_ms: int) -> bool:
        """Lower the limit after brokers have refused a time-out; return whether a shorter one is left to try."""
        if timeout_ms <= self.least_ms:
            return False
        self.most_ms = max(self.least_ms, timeout_ms // 2)
        return True
