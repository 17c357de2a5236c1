"""A consumer over an embedded log: positions, polling, group offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from penstock.errors import InvalidStateError, OffsetOutOfRangeError
from penstock.log.base import TopicPartition
from penstock.log.embedded import EmbeddedLog

__all__ = ["Consumer", "ConsumerRecord"]


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """One record, as Kafka's ConsumerRecord."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Consumer:
    """Kafka's consumer, small: it reads all partitions of its topics itself (no rebalancing).

    Args:
        log: Where from.
        group: Starts from this group's committed offsets, and ``commit`` sets them.
        auto_offset_reset: Where to start without a committed offset, or when retention has removed it.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-consumer")
        >>> log.create_topic("orders")
        >>> _ = log.append("orders", 0, pa.RecordBatch.from_pydict({"value": [b"apples"]}))
        >>> consumer = Consumer(log)
        >>> consumer.subscribe(["orders"])
        >>> [record.value for record in consumer.records()]
        [b'apples']
    """

    def __init__(
        self, log: EmbeddedLog, group: str | None = None, auto_offset_reset: Literal["earliest", "latest"] = "earliest"
    ) -> None:
        self._log = log
        self._group = group
        self._reset = auto_offset_reset
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition."""
        return dict(self._positions)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Reads all partitions of these topics, from the group's offsets or as ``auto_offset_reset`` says."""
        committed = self._log.committed_offsets(self._group) if self._group else {}
        start = self._log.beginning_offsets(topics) if self._reset == "earliest" else self._log.end_offsets(topics)
        self.assign({place: committed.get(place, offset) for place, offset in start.items()})

    def assign(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None = None) -> None:
        """Reads these partitions from these offsets, and up to ``ends`` (exclusive) where given."""
        self._positions = dict(starts)
        self._ends = dict(ends or {})

    def seek_to_time(self, timestamp: int, until: int | None = None) -> None:
        """Moves to the first records not older than ``timestamp``; stops before the first from ``until`` on."""
        for place in self._positions:
            self._positions[place] = self._at(place, timestamp)
            if until is not None:
                self._ends[place] = self._at(place, until)

    def _at(self, place: TopicPartition, timestamp: int) -> int:
        found = self._log.offset_for_time(place.topic, place.partition, timestamp)
        return found.offset if found else self._log.end_offset(place.topic, place.partition)

    def poll(self, timeout_s: float = 0.0, max_records: int = 50_000) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """What there is, at most ``max_records`` a partition; waits up to ``timeout_s`` if there is nothing."""
        if not self._positions:
            raise InvalidStateError("this consumer has no partitions", hint="call subscribe or assign first")
        deadline = time.monotonic() + timeout_s
        while True:
            version = self._log.version()
            found = [(place, batch) for place in self._positions if (batch := self._fetch(place, max_records)).num_rows]
            left = deadline - time.monotonic()
            if found or left <= 0 or self.finished:
                return found
            self._log.wait_for_data(version, left)

    @property
    def finished(self) -> bool:
        """Whether every partition has an end and has reached it."""
        return all(place in self._ends and offset >= self._ends[place] for place, offset in self._positions.items())

    def records(self, timeout_s: float = 0.0, max_records: int = 50_000) -> Iterator[ConsumerRecord]:
        """One poll, as records."""
        for place, batch in self.poll(timeout_s, max_records):
            columns = [batch.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value", "headers")]
            for offset, timestamp, key, value, headers in zip(*columns, strict=True):
                pairs = tuple((each["key"], each["value"]) for each in headers or ())
                yield ConsumerRecord(place.topic, place.partition, offset, timestamp, key, value, pairs)

    def commit(self) -> None:
        """Commits the positions for the group."""
        if self._group is None:
            raise InvalidStateError("this consumer has no group", hint="give Consumer(log, group=...)")
        self._log.commit_offsets(self._group, self._positions)

    def _fetch(self, place: TopicPartition, max_records: int) -> pa.RecordBatch:
        position, end = self._positions[place], self._ends.get(place)
        if end is not None and position >= end:
            max_records = 1  # nothing is kept of it, but the range is still checked
        try:
            fetched = self._log.read(place.topic, place.partition, position, max_records)
        except OffsetOutOfRangeError:
            first = self._log.beginning_offset(place.topic, place.partition)
            last = self._log.end_offset(place.topic, place.partition)
            self._positions[place] = first if self._reset == "earliest" else last
            return self._fetch(place, max_records)
        if end is None or fetched.next_offset <= end:
            self._positions[place] = fetched.next_offset
            return fetched.records
        self._positions[place] = max(position, end)
        offsets = fetched.records.column("offset").to_numpy()
        return fetched.records.slice(0, int(offsets.searchsorted(end)))
