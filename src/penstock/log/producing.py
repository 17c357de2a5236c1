"""The seam between `Producer` and the two logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.log.base import TopicPartition

__all__ = ["Delivery", "Headers", "OnDelivery", "ProducerPort"]

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where a record was written; Kafka's ``RecordMetadata``."""

    topic: str
    partition: int
    offset: int
    timestamp: int


OnDelivery = Callable[[Delivery | None, Exception | None], None]


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
