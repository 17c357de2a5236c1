"""Deletion of the records of repartition topics that have been processed and committed, as Kafka Streams does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.log.base import TopicLog, TopicPartition

__all__ = ["Purger"]

_log = logging.getLogger(__name__)


class Purger:
    """Deletes records behind the committed positions, beside the thread's loop.

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
        self._working: threading.Thread | None = None

    def note(self, committed: Mapping[TopicPartition, int]) -> None:
        """Note committed positions, and begin to delete behind all that have been noted if it is time."""
        self._behind |= {place: offset for place, offset in committed.items() if place.topic in self._topics}
        if not self._behind or self._clock_s() - self._last_s < self._interval_s:
            return
        if self._working is not None and self._working.is_alive():
            return
        self._last_s = self._clock_s()
        behind, self._behind = self._behind, {}
        self._working = threading.Thread(target=self._purge, args=(behind,), name="repartition-purge", daemon=True)
        self._working.start()

    def wait(self) -> None:
        """Wait for a deletion that is under way."""
        if self._working is not None:
            self._working.join()

    def _purge(self, behind: Mapping[TopicPartition, int]) -> None:
        for place, offset in behind.items():
            try:
                self._log.delete_records(place.topic, place.partition, offset)
            except PenstockError as error:  # the next attempt may succeed, and no result depends on it
                _log.warning("Records of %s-%d below %d stay: %s", place.topic, place.partition, offset, error)
