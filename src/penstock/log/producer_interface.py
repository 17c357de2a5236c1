"""The options, records and deliveries of a producer, and the interface between `Producer` and the two logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.log_lines import own_logger
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, TopicPartition
from penstock.serde.partitioner import partitions_for

__all__ = [
    "Delivery",
    "Headers",
    "LogProducer",
    "OnDelivery",
    "ProducerOptions",
    "ProducerRecord",
    "as_batch",
    "call_back",
    "parts_of",
]

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
