"""The options and records of consumers and producers, and the interfaces between them and the two logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.log_lines import own_logger
from penstock.errors import ConfigError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, Isolation, OffsetAndTime, TopicPartition
from penstock.log.partitioner import partitions_for

__all__ = [
    "ConsumerOptions",
    "ConsumerRecord",
    "Delivery",
    "Headers",
    "LogConsumer",
    "LogProducer",
    "OffsetReset",
    "OnDelivery",
    "ProducerOptions",
    "ProducerRecord",
    "RebalanceListener",
    "as_batch",
    "call_back",
    "parts_of",
    "records_of",
]

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


_log = own_logger(__name__)
_SCHEMA = RECORD_SCHEMA.remove(RECORD_SCHEMA.get_field_index("offset"))
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """The partition and offset of a written record; Kafka's ``RecordMetadata``."""

    topic: str
    partition: int
    offset: int
    timestamp: int


OnDelivery = Callable[[Delivery | None, Exception | None], None]


def call_back(on_delivery: OnDelivery, done: Delivery | None, error: Exception | None) -> None:
    """Tell a user's function of a delivery. What it raises is logged, as by Kafka's producer: the record is written."""
    try:
        on_delivery(done, error)
    except Exception:  # noqa: BLE001 - of any function of a user
        what = f"{done.topic}-{done.partition} offset {done.offset}" if done is not None else "a record"
        _log.exception("on_delivery has raised an error for %s", what)


def parts_of(records: pa.RecordBatch, partitions: int, turn: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split records by the partitions of their keys; those without a key go to one partition, chosen by ``turn``."""
    if not records.num_rows:
        return
    targets = np.full(records.num_rows, turn % partitions, dtype=np.int32)
    if "key" in records.schema.names:
        keys = records.column("key").cast(pa.large_binary())
        targets = np.where(np.asarray(pc.is_valid(keys)), partitions_for(keys, partitions), targets)
    for partition in np.unique(targets):
        chosen = np.flatnonzero(targets == partition)
        yield int(partition), records if len(chosen) == records.num_rows else records.take(pa.array(chosen))


class ProducerRecord(NamedTuple):
    """A record to be sent; Kafka's ``ProducerRecord``. Without a partition, the key's."""

    topic: str
    value: bytes | None
    key: bytes | None
    timestamp: int
    partition: int | None
    headers: Headers | None


def as_batch(records: Sequence[ProducerRecord]) -> pa.RecordBatch:
    """Return records of one topic as columns of RECORD_SCHEMA, without offsets."""
    _, values, keys, times, _, headers = zip(*records, strict=True)
    packed = [None if each is None else [{"key": name, "value": value} for name, value in each] for each in headers]
    arrays = [
        pa.array(times, pa.int64()),
        pa.array(keys, pa.large_binary()),
        pa.array(values, pa.large_binary()),
        pa.array(packed, HEADERS_TYPE),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The settings of a producer.

    Attributes:
        transactional_id: Empty: no transactions.
        linger_ms: The time that a record may wait for others.
        batch_bytes: The size of a full batch.
        settings: More of Kafka's client settings by their Java names.
    """

    transactional_id: str = ""
    linger_ms: int = 5
    batch_bytes: int = 1 << 20
    settings: Mapping[str, str] = field(default_factory=dict)


class LogProducer(Protocol):
    """The operations of a log that `Producer` needs."""

    def send(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> None: ...
    def send_batch(self, topic: str, records: pa.RecordBatch) -> None: ...
    def poll(self) -> None: ...
    def flush(self) -> None: ...
    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: object) -> None: ...
    def close(self) -> None: ...
