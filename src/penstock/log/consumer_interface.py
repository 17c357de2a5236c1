"""The options, records and callbacks of a consumer, and the interface between `Consumer` and the two logs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.log.base import Isolation, OffsetAndTime, TopicPartition

__all__ = ["ConsumerOptions", "LogConsumer", "ConsumerRecord", "OffsetReset", "RebalanceListener", "records_of"]

OffsetReset = Literal["earliest", "latest", "none"]


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The settings of a consumer, named as in Kafka's consumer configuration."""

    group: str = ""
    group_instance_id: str = ""
    client_id: str = ""
    auto_offset_reset: OffsetReset = "earliest"
    assignors: tuple[str, ...] = ("range",)
    auto_commit_interval_ms: int | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    isolation: Isolation = "read_committed"
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in ("earliest", "latest", "none"):
            raise ConfigError(f"auto_offset_reset is {self.auto_offset_reset!r}", hint="earliest, latest or none")
        if self.group_instance_id and not self.group:
            raise ConfigError("a group_instance_id without a group", hint="give Consumer(log, group=...)")


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """One record; Kafka's ``ConsumerRecord``."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def records_of(tp: TopicPartition, batch: pa.RecordBatch) -> Iterator[ConsumerRecord]:
    """Yield the single records of a batch (RECORD_SCHEMA)."""
    columns = [batch.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value", "headers")]
    for offset, timestamp, key, value, headers in zip(*columns, strict=True):
        pairs = tuple((each["key"], each["value"]) for each in headers or ())
        yield ConsumerRecord(tp.topic, tp.partition, offset, timestamp, key, value, pairs)


class RebalanceListener:
    """Callbacks for partitions that come and go; Kafka's ``ConsumerRebalanceListener``. Subclass it.

    Its methods are called within ``poll`` and ``close``, in the thread that calls these.
    """

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called when these partitions are read from now on, in addition to the earlier ones."""

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Called before these partitions go to another member; their offsets can still be committed."""

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Called after the group has removed this silent consumer: these partitions' offsets cannot be committed."""


class LogConsumer(Protocol):
    """The operations of a log that `Consumer` needs; each consumer has one of its own."""

    def subscribe(self, topics: Sequence[str], pattern: re.Pattern[str] | None) -> None: ...
    def unsubscribe(self) -> None: ...
    def assign(self, starts: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from these offsets; None: the group's offset, or by ``auto_offset_reset``."""
        ...

    def assignment(self) -> set[TopicPartition]: ...
    def position(self, tp: TopicPartition) -> int: ...
    def seek(self, tp: TopicPartition, offset: int) -> None: ...
    def pause(self, places: Collection[TopicPartition]) -> None: ...
    def resume(self, places: Collection[TopicPartition]) -> None: ...
    def paused(self) -> set[TopicPartition]: ...
    def fetch(self, timeout_s: float, max_records: int) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """Fetch at most ``max_records`` within the timeout, and move the positions behind them."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def group_metadata(self) -> object: ...
    def partitions(self, topic: str) -> int: ...
    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]: ...
    def last_offset_before(self, tp: TopicPartition, timestamp: int, end: int) -> int:
        """Return an offset <= ``end`` from which on no record is older than ``timestamp``; ``end`` if unknown."""
        ...

    def close(self) -> None: ...
