"""A producer over a topic log: batches single records, partitions them by key as Kafka does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidStateError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, TopicLog, TopicPartition
from penstock.serde.partitioner import partition_for, partitions_for

__all__ = ["Producer"]

_SCHEMA = RECORD_SCHEMA.remove(RECORD_SCHEMA.get_field_index("offset"))
Headers = Sequence[tuple[str, bytes | None]]
_Row = tuple[int, bytes | None, bytes | None, Headers | None]


class Producer:
    """Kafka's producer, small: records wait until ``linger_ms`` has passed or a batch is full.

    There is no thread behind it: ``send`` and ``poll`` look at the clock, so call ``poll`` when input pauses.

    Args:
        log: Where to.
        linger_ms: How long a record may wait for others.
        batch_bytes: Flushes when this much waits.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-producer")
        >>> log.create_topic("orders", partitions=3)
        >>> with Producer(log) as producer:
        ...     producer.send("orders", b"apples", key=b"alice")
        >>> sum(log.end_offsets(["orders"]).values())
        1
    """

    def __init__(self, log: TopicLog, *, linger_ms: int = 5, batch_bytes: int = 1 << 20) -> None:
        self._log = log
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._waiting: dict[TopicPartition, list[_Row]] = {}
        self._waiting_bytes = 0
        self._since = 0.0
        self._counts: dict[str, int] = {}
        self._turn: dict[str, int] = {}
        self._closed = False

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Takes one record; without a partition, the key's; without a key, one partition per batch in turn."""
        self._check_open()
        if partition is None:
            count = self._partitions(topic)
            partition = self._sticky(topic) if key is None else partition_for(key, count)
        at = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.setdefault(TopicPartition(topic, partition), []).append((at, key, value, headers))
        self._waiting_bytes += len(key or b"") + len(value or b"") + 32
        if self._waiting_bytes >= self._batch_bytes:
            self.flush()
        else:
            self.poll()

    def send_batch(self, topic: str, records: pa.RecordBatch) -> None:
        """Takes many records (RECORD_SCHEMA without offset; key and headers may be absent) and writes them at once."""
        self.flush()
        count = self._partitions(topic)
        if not records.num_rows:
            return
        targets = np.full(records.num_rows, self._sticky(topic), dtype=np.int32)
        if "key" in records.schema.names:
            keys = records.column("key").cast(pa.large_binary())
            targets = np.where(np.asarray(pc.is_valid(keys)), partitions_for(keys, count), targets)
        self._turn[topic] = self._turn.get(topic, 0) + 1
        with self._log.transaction("") as transaction:
            for partition in np.unique(targets):
                chosen = np.flatnonzero(targets == partition)
                part = records if len(chosen) == records.num_rows else records.take(pa.array(chosen))
                transaction.append(topic, int(partition), part)

    def poll(self) -> None:
        """Flushes if the oldest waiting record has waited ``linger_ms``."""
        if self._waiting and time.monotonic() - self._since >= self._linger_s:
            self.flush()

    def flush(self) -> None:
        """Writes all that waits, in one transaction. What cannot be written goes on waiting."""
        self._check_open()
        if not self._waiting:
            return
        with self._log.transaction("") as transaction:
            for place, rows in self._waiting.items():
                transaction.append(place.topic, place.partition, _batch(rows))
        for topic in {place.topic for place in self._waiting}:
            self._turn[topic] = self._turn.get(topic, 0) + 1
        self._waiting, self._waiting_bytes = {}, 0
        self._counts.clear()  # partitions may be added at any time

    def close(self) -> None:
        """Flushes; the log stays open."""
        if not self._closed:
            self.flush()
            self._closed = True

    def _partitions(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._log.topic(topic).partitions
        return self._counts[topic]

    def _sticky(self, topic: str) -> int:
        return self._turn.get(topic, 0) % self._partitions(topic)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidStateError("this producer is closed", hint="make another one")

    def __enter__(self) -> Producer:  # noqa: PYI034 - not meant to be subclassed
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _batch(rows: Sequence[_Row]) -> pa.RecordBatch:
    times, keys, values, headers = zip(*rows, strict=True)
    packed = [None if each is None else [_header(name, value) for name, value in each] for each in headers]
    arrays = [
        pa.array(times, pa.int64()),
        pa.array(keys, pa.large_binary()),
        pa.array(values, pa.large_binary()),
        pa.array(packed, HEADERS_TYPE),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _header(name: str, value: bytes | None) -> Mapping[str, str | bytes | None]:
    return {"key": name, "value": value}
