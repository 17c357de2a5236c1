"""The consumer of a stream thread over an embedded log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Self

from penstock.log.base import Fetched, TopicPartition
from penstock.log.embedded import catalog, records
from penstock.log.embedded.database import Database

__all__ = ["EmbeddedFetcher"]

_PARTITION_BYTES = 4 << 20
_MOST_BYTES = 32 << 20


class EmbeddedFetcher:
    """The `Fetcher` of an embedded log: it reads when it is asked, in one snapshot of the file.

    A poll returns at most about 32 MiB, at least one stored row of each partition that is read, and begins with another
    partition each time, so that none starves.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._seen = -1  # the version of the log at which nothing was left to read
        self._turn = 0

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions from these offsets on, and no others."""
        self._positions = dict(positions)
        self._ends = {tp: end for tp, end in self._ends.items() if tp in positions}
        self._paused &= positions.keys()
        self._seen = -1

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Fetch these partitions no further until `resume`."""
        self._paused.update(self._positions.keys() & set(places))

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self._paused.difference_update(places)
        self._seen = -1

    def poll(self, timeout_s: float) -> dict[TopicPartition, Fetched]:
        """Return the records that are there; wait for some until the time-out.

        Raises:
            OffsetOutOfRangeError: Retention has removed records behind a position, or the topic was created anew.
            UnknownTopicError: A topic has been deleted.
            LogError: Stored records are damaged.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            version = self._database.version()
            fetched = self._read() if version != self._seen else {}
            left = deadline - time.monotonic()
            if fetched or left <= 0:
                return fetched
            self._seen = version
            self._database.wait_for_write(version, left)

    def ends(self) -> Mapping[TopicPartition, int]:
        """Return the end of each partition as of the last poll that found something new."""
        return self._ends

    def close(self) -> None:
        """Forget all partitions."""
        self.assign({})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self) -> dict[TopicPartition, Fetched]:
        fetched: dict[TopicPartition, Fetched] = {}
        left = _MOST_BYTES
        with self._database.reading() as connection:
            slots = catalog.slots(connection, self._positions)
            self._ends = {tp: slot.next_offset for tp, slot in slots.items()}
            waiting = [
                tp for tp, position in self._positions.items() if position != self._ends[tp] and tp not in self._paused
            ]
            first = self._turn % len(waiting) if waiting else 0
            for tp in (*waiting[first:], *waiting[:first]):
                part, size = records.read_bytes(connection, slots[tp], self._positions[tp], min(left, _PARTITION_BYTES))
                fetched[tp] = part
                left -= size
                if left <= 0:
                    break
        for tp, part in fetched.items():
            self._positions[tp] = part.next_offset
        self._turn += len(fetched)
        return fetched
