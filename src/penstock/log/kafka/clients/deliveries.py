"""The queue of a librdkafka producer and its delivery reports, for users, who send records one by one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.base.clock import unix_ms
from penstock.errors import PenstockError
from penstock.log.kafka.error_codes import LocalCode
from penstock.log.kafka.failures import error_of, failure, too_large_here
from penstock.log.kafka.writing import Part

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

    from penstock.log.kafka.access import ClusterAccess

__all__ = ["Deliveries", "enqueue", "enqueue_to", "flush"]

_FULL_PAUSE_S = 0.05


class Deliveries:
    """The callback for a producer's delivery reports; the client calls it while it is polled or flushed.

    Args:
        access: Explains refusals.
        limit_bytes: The largest record that the client sends.
    """

    def __init__(self, access: ClusterAccess | None = None, limit_bytes: int = 0) -> None:
        self.access = access
        self.limit_bytes = limit_bytes
        self.first: tuple[KafkaError, str, int] | None = None
        self.count = 0
        self.first_offset: int | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            if self.first_offset is None:
                self.first_offset = message.offset()
            return
        self.count += 1
        # A purge or an abort is a consequence, not the cause.
        if self.first is None or self.first[0].code() in (LocalCode.PURGE_QUEUE, LocalCode.PURGE_INFLIGHT):
            self.first = (error, message.topic(), message.partition())

    def forget(self) -> None:
        """Forget all reports, before the next unit."""
        self.first, self.count, self.first_offset = None, 0, None

    def check(self) -> None:
        """Raise the first error."""
        if self.first is not None:
            error, topic, partition = self.first
            raise _not_written(error, topic, partition, self.access)


def enqueue(producer: Producer, part: Part, deliveries: Deliveries) -> None:
    """Pass the records of a partition to the producer, as fast as it accepts them."""
    topic, partition, records = part
    enqueue_to(producer, topic, repeat(partition, records.num_rows), records, deliveries)


def enqueue_to(
    producer: Producer, topic: str, partitions: Iterable[int], records: pa.RecordBatch, deliveries: Deliveries
) -> None:
    """Pass records to the producer, each for its own partition."""
    produce = producer.produce
    partition, key, value = -1, None, None
    try:
        for partition, (time_ms, key, value, headers) in zip(partitions, _rows(records), strict=True):
            while True:
                try:
                    produce(topic, value, key, partition, None, None, time_ms, headers)
                    break
                except BufferError:
                    producer.poll(_FULL_PAUSE_S)
                    deliveries.check()  # a queue that stays full because nothing can be delivered
    except KafkaException as error:
        if error_of(error).code() == KafkaError.MSG_SIZE_TOO_LARGE:  # no broker has seen it
            size, facts = len(key or b"") + len(value or b""), {"topic": topic, "partition": partition}
            raise too_large_here(f"writing to {topic}-{partition}", size, deliveries.limit_bytes, **facts) from error
        raise _not_written(error, topic, partition, deliveries.access) from error


def _not_written(
    error: KafkaException | KafkaError, topic: str, partition: int, access: ClusterAccess | None
) -> PenstockError:
    doing = f"writing to {topic}-{partition}"
    return failure(error, doing, access, topic=topic, partition=partition, operation="WRITE")


def _rows(records: pa.RecordBatch) -> Iterator[tuple[int, bytes | None, bytes | None, Any]]:
    names = set(records.schema.names)
    count = records.num_rows
    now = unix_ms()
    times = records.column("timestamp").to_pylist() if "timestamp" in names else repeat(now, count)
    if "timestamp" in names and records.column("timestamp").null_count:
        times = [now if each is None else each for each in times]
    keys = records.column("key").to_pylist() if "key" in names else repeat(None, count)
    values = records.column("value").to_pylist() if "value" in names else repeat(None, count)
    headers: Any = repeat([], count)
    if "headers" in names and records.column("headers").null_count < count:
        lists = records.column("headers").to_pylist()
        headers = [[(h["key"], h["value"]) for h in each] if each else [] for each in lists]
    return zip(times, keys, values, headers, strict=True)


def flush(producer: Producer, deliveries: Deliveries, patience_s: float) -> None:
    """Wait until all records are delivered.

    Raises:
        LogError: A record was not delivered.
    """
    began = time.monotonic()
    left = producer.flush(patience_s)
    deliveries.check()
    if left:
        producer.purge()
        late = KafkaError(LocalCode.TIMED_OUT, f"{left} records not delivered within {patience_s:.0f} s")
        refused = deliveries.access.refused_since(began) if deliveries.access is not None else None
        raise failure(refused or late, "writing", deliveries.access)
