"""Deletion of the records of repartition topics that have been processed and committed, as Kafka Streams does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.errors import LogUnavailableError, PenstockError

if TYPE_CHECKING:
    from penstock.log.base import TopicLog, TopicPartition

__all__ = ["Purger"]

_log = own_logger(__name__)
_CLOSE_S = 2.0


class Purger:
    """The deletion of records behind the committed positions, beside the thread's loop.

    Args:
        log: The log.
        topics: The repartition topics, by their names in the log.
        interval_ms: ``repartition.purge.interval.ms``.
        clock_s: A clock that only goes forward.
    """

    def __init__(
        self,
        log: TopicLog,
        topics: Collection[str],
        interval_ms: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._topics = frozenset(topics)
        self._interval_s = interval_ms / 1000
        self._clock_s = clock_s
        self._last_s = clock_s()
        self._behind: dict[TopicPartition, int] = {}  # records below these offsets are not needed any more
        self._failed: Mapping[TopicPartition, int] = {}  # those of the last deletion, if it failed
        self._said = ""  # about that failure
        self._working: threading.Thread | None = None
        self._is_closed = False

    def note(self, committed: Mapping[TopicPartition, int]) -> None:
        """Note committed positions; `begin_if_due` deletes what is behind them."""
        self._behind |= {tp: offset for tp, offset in committed.items() if tp.topic in self._topics}

    def begin_if_due(self) -> None:
        """Begin to delete behind all that has been noted, and what a deletion before could not, if it is time.

        A thread without new records calls it too: what its last commit left behind is deleted as well.
        """
        if not (self._behind or self._failed) or self._clock_s() - self._last_s < self._interval_s:
            return
        if self._working is not None and self._working.is_alive():
            return
        self._last_s = self._clock_s()
        behind, self._behind, self._failed = {**self._failed, **self._behind}, {}, {}
        self._working = threading.Thread(target=self._purge, args=(behind,), name="repartition-purge", daemon=True)
        self._working.start()

    def close(self) -> None:
        """Give a deletion that is under way a moment; then leave it behind, as no result depends on it."""
        self._is_closed = True
        if self._working is not None:
            self._working.join(_CLOSE_S)

    def _purge(self, behind: Mapping[TopicPartition, int]) -> None:
        try:
            self._log.purge(behind)
        except PenstockError as error:
            if self._is_closed:
                return
            self._failed = behind
            if str(error) == self._said:
                return
            self._said = str(error)
            passes = isinstance(error, LogUnavailableError)
            _log.log(
                logging.INFO if passes else logging.WARNING,
                "Records of %s below the committed offsets stay for now: %s",
                ", ".join(sorted({tp.topic for tp in behind})),
                error,
            )
        else:
            self._said = ""
