"""What a consumer is told, and what it needs of a log: the seam between `Consumer` and the two logs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa

from penstock.log.base import Isolation, OffsetAndTime, TopicPartition

__all__ = ["ConsumerOptions", "ConsumerPort", "ConsumerRecord", "OffsetReset", "RebalanceListener", "records_of"]

OffsetReset = Literal["earliest", "latest", "none"]


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a consumer behaves; names as in Kafka's consumer configuration."""

    group: str = ""
    group_instance_id: str = ""
    client_id: str = ""
    auto_offset_reset: OffsetReset = "earliest"
    assignors: tuple[str, ...] = ("range",)
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    isolation: Isolation = "read_committed"
    settings: Mapping[str, str] = field(default_factory=dict)


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


def records_of(place: TopicPartition, batch: pa.RecordBatch) -> Iterator[ConsumerRecord]:
    """A batch (RECORD_SCHEMA) as single records."""
    columns = [batch.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value", "headers")]
    for offset, timestamp, key, value, headers in zip(*columns, strict=True):
        pairs = tuple((each["key"], each["value"]) for each in headers or ())
        yield ConsumerRecord(place.topic, place.partition, offset, timestamp, key, value, pairs)


class RebalanceListener:
    """Hears of partitions that come and go; Kafka's ``ConsumerRebalanceListener``. Subclass it.

    It is called from within ``poll`` and ``close``, in the thread that calls these.
    """

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are read from now on, together with what was read before."""

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These are about to go to another member; their offsets may still be committed."""

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """These have gone already: the group had not heard of this consumer for too long. Nothing can be committed."""


class ConsumerPort(Protocol):
    """What `Consumer` needs of a log; one is made for each consumer."""

    def subscribe(self, topics: Sequence[str], pattern: re.Pattern[str] | None) -> None: ...
    def unsubscribe(self) -> None: ...
    def assign(self, starts: Mapping[TopicPartition, int | None]) -> None:
        """None: from the group's offset, or as ``auto_offset_reset`` says."""
        ...

    def assignment(self) -> set[TopicPartition]: ...
    def position(self, place: TopicPartition) -> int: ...
    def seek(self, place: TopicPartition, offset: int) -> None: ...
    def pause(self, places: Collection[TopicPartition]) -> None: ...
    def resume(self, places: Collection[TopicPartition]) -> None: ...
    def paused(self) -> set[TopicPartition]: ...
    def fetch(self, timeout_s: float, max_records: int) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """What comes within that time, at most so many records in all; positions are behind them afterwards."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def group_metadata(self) -> object: ...
    def partitions(self, topic: str) -> int: ...
    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]: ...
    def last_offset_before(self, place: TopicPartition, timestamp: int, end: int) -> int:
        """An offset <= ``end`` from which on no record is older than ``timestamp``; ``end`` where nobody knows."""
        ...

    def close(self) -> None: ...
