"""The seam between `Producer` and the two logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.base import TopicPartition
from penstock.serde.partitioner import partitions_for

__all__ = ["Delivery", "Headers", "OnDelivery", "ProducerPort", "parts_of"]

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where a record was written; Kafka's ``RecordMetadata``."""

    topic: str
    partition: int
    offset: int
    timestamp: int


OnDelivery = Callable[[Delivery | None, Exception | None], None]


def parts_of(records: pa.RecordBatch, partitions: int, turn: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Records by the partitions of their keys; those without a key all to one partition, another one each ``turn``."""
    if not records.num_rows:
        return
    targets = np.full(records.num_rows, turn % partitions, dtype=np.int32)
    if "key" in records.schema.names:
        keys = records.column("key").cast(pa.large_binary())
        targets = np.where(np.asarray(pc.is_valid(keys)), partitions_for(keys, partitions), targets)
    for partition in np.unique(targets):
        chosen = np.flatnonzero(targets == partition)
        yield int(partition), records if len(chosen) == records.num_rows else records.take(pa.array(chosen))


class ProducerPort(Protocol):
    """What `Producer` needs of a log."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int,
        partition: int | None,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
    ) -> None: ...
    def send_batch(self, topic: str, records: pa.RecordBatch) -> None: ...
    def poll(self) -> None: ...
    def flush(self) -> None: ...
    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def send_offsets(self, offsets: Mapping[TopicPartition, int], who: object) -> None: ...
    def close(self) -> None: ...
