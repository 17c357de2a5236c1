"""Records of the log for push queries: from the beginning or from now, merged by time, until now or for ever."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Literal

from penstock.log.base import TopicLog, TopicPartition
from penstock.runtime.record import headers_of
from penstock.testing.queues import RawRecord

__all__ = ["LogRecords"]

BATCH = 2_000  # records of a partition in one fetch


class LogRecords:
    """The records of some topics, in the order of Kafka Streams: the partition whose next record is oldest goes first.

    Where reading begins and, for a query that ends, where it ends is fixed when this is made.

    Args:
        log: The log.
        topics: The topics, which exist.
        start: Whether to begin with the oldest records or with those written from now on: ``auto.offset.reset``.
        until: Whether to end where the topics end now.
    """

    def __init__(
        self, log: TopicLog, topics: Sequence[str], start: Literal["earliest", "latest"], until: Literal["never", "now"]
    ) -> None:
        self._log = log
        self._until = until
        ends = log.end_offsets(topics)
        self._positions = dict(ends) if start == "latest" else log.beginning_offsets(topics)
        self._ends = ends
        self._waiting: dict[TopicPartition, deque[RawRecord]] = {place: deque() for place in ends}
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the records; from any thread."""
        self._stopped.set()

    def records(self, wait_s: float = 0.2) -> Iterator[RawRecord | None]:
        """Yield records; None whenever there is none for a while.

        Args:
            wait_s: The longest wait for a new record, in seconds.
        """
        while not self._stopped.is_set():
            self._fill()
            ready = [(queue[0].timestamp, place) for place, queue in self._waiting.items() if queue]
            if ready:
                yield self._waiting[min(ready)[1]].popleft()
                continue
            if self._until == "now":
                return
            yield None
            self._ends = self._log.wait_for_data(self._positions, wait_s)

    def _fill(self) -> None:
        for place, queue in self._waiting.items():
            while not queue and self._positions[place] < self._ends[place]:
                fetched = self._log.read(place.topic, place.partition, self._positions[place], BATCH)
                if fetched.next_offset <= self._positions[place]:
                    break  # nothing that can be read yet
                self._positions[place] = fetched.next_offset
                batch = fetched.records
                headers = headers_of(batch.column("headers"))
                columns = (batch.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value"))
                for number, (offset, timestamp, key, value) in enumerate(zip(*columns, strict=True)):
                    if self._until == "never" or offset < self._ends[place]:
                        found = headers[number] if headers else ()
                        queue.append(RawRecord(place.topic, offset, timestamp, key, value, found, place.partition))
