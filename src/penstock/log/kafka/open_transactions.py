"""Transactions that are open in front of records, and may never end: a reader of committed records waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger

if TYPE_CHECKING:
    from penstock.log.base import TopicPartition

__all__ = ["OpenTransactions"]

_log = own_logger(__name__)
_LOOK_EVERY_S = 1.0
_STUCK_S = 10.0  # longer than transactions of stream threads take
_AGAIN_S = 60.0


class OpenTransactions:
    """The partitions of a fetcher whose last stable offset stands still before their end.

    Args:
        on_stuck: Called after 10 s and then once a minute, to end the transaction if it is the application's own.
        clock: Returns the time in seconds.
    """

    def __init__(self, on_stuck: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_stuck = on_stuck
        self._clock = clock
        self._since: dict[TopicPartition, tuple[int, float]] = {}
        self._look_at = self._call_at = 0.0

    def note(self, tp: TopicPartition, stable: int, end: int) -> None:
        """Note the last stable offset and the end (high watermark) of a partition, as a broker has just said."""
        if stable >= end:
            self._since.pop(tp, None)
        elif self._since.get(tp, (-1, 0.0))[0] != stable:
            self._since[tp] = (stable, self._clock())

    def keep(self, places: Collection[TopicPartition]) -> None:
        """Forget all but these partitions."""
        self._since = {tp: since for tp, since in self._since.items() if tp in places}

    def look(self) -> None:
        """Warn of transactions that have been open for long, and try to end them."""
        now = self._clock()
        if not self._since or now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY_S
        stuck = {tp: at for tp, at in self._since.items() if now - at[1] >= _STUCK_S}
        if not stuck or now < self._call_at:
            return
        self._call_at = now + _AGAIN_S
        for tp, (stable, since) in stuck.items():
            _log.warning(
                "%s-%d: a transaction has been open at offset %d for %.0f s; the records behind it are read when it "
                "ends. Its producer may be slow or gone (transaction.timeout.ms), or the broker has lost its end "
                "(kafka-transactions.sh find-hanging)",
                tp.topic, tp.partition, stable, now - since,
            )  # fmt: skip
        self._on_stuck()
