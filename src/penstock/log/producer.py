"""A producer over any topic log: single records and batches, partitions as Kafka chooses them, transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.errors import InvalidStateError
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.ports import producer_port
from penstock.log.producing import Delivery, Headers, OnDelivery

if TYPE_CHECKING:
    from penstock.log.consumer import Consumer

__all__ = ["Delivery", "Producer"]


class Producer:
    """Kafka's producer, over an embedded log or over Kafka. Not for several threads at once.

    Writes are idempotent: a retry writes nothing twice. Records wait until ``linger_ms`` has passed or a batch is full.
    Over an embedded log there is no thread behind it: ``send`` and ``poll`` look at the clock, so call ``poll`` when
    input pauses.

    Args:
        log: Where to: a log, or its URL (a file, or Kafka's ``host:port``).
        transactional_id: Makes all writes transactions; a newer producer of the same id fences this one.
        linger_ms: How long a record may wait for others.
        batch_bytes: A batch is full at this size.
        settings: More of Kafka's client settings by their Java names (security, compression).

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-producer")
        >>> log.create_topic("orders", partitions=3)
        >>> with Producer(log) as producer:
        ...     producer.send("orders", b"apples", key=b"alice")
        >>> sum(log.end_offsets(["orders"]).values())
        1
    """

    def __init__(
        self,
        log: TopicLog | str,
        *,
        transactional_id: str = "",
        linger_ms: int = 5,
        batch_bytes: int = 1 << 20,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._transactional_id = transactional_id
        self._port, self._opened = producer_port(log, transactional_id, linger_ms, batch_bytes, settings or {})
        self._closed = self._in_transaction = False

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Takes one record; without a partition, the key's; without a key, one partition per batch in turn.

        Args:
            topic: Where to.
            value: Bytes; None is a tombstone.
            key: Chooses the partition as Kafka's own producer does.
            timestamp: Milliseconds since the epoch; by default now.
            partition: In place of the key's.
            headers: Pairs of a name and bytes.
            on_delivery: Called with the Delivery, or with the error, from within a later call of this producer.
        """
        self._check_may_send()
        at = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        self._port.send(topic, value, key, at, partition, headers, on_delivery)

    def send_batch(self, topic: str, records: pa.RecordBatch) -> None:
        """Takes many records (RECORD_SCHEMA without offset; key and headers may be absent) at once."""
        self._check_may_send()
        self._port.send_batch(topic, records)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """All that is sent in this block, and the offsets, become visible together when it ends; nothing if it raises.

        Example:
            >>> from penstock.log.open import open_log
            >>> log = open_log("memory://doc-transaction")
            >>> log.create_topic("debits"), log.create_topic("credits")
            (None, None)
            >>> with Producer(log, transactional_id="transfers") as producer, producer.transaction():
            ...     producer.send("debits", b"10", key=b"alice")
            ...     producer.send("credits", b"10", key=b"bob")
            >>> log.end_offset("debits", 0), log.end_offset("credits", 0)
            (1, 1)

        Raises:
            FencedError: A newer producer has this transactional id, or the offsets are another member's.
        """
        if self._in_transaction:
            raise InvalidStateError("this producer is in a transaction", hint="end it before the next one")
        if not self._transactional_id:
            raise InvalidStateError("this producer has no transactional id", hint="give Producer(transactional_id=...)")
        self._port.begin()
        self._in_transaction = True
        try:
            yield self
        except BaseException:
            self._port.abort()
            raise
        else:
            self._port.commit()
        finally:
            self._in_transaction = False

    def send_offsets(self, consumer: Consumer, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits a consumer's offsets, by default its positions, with the transaction: read, process, write, once.

        Kafka's ``sendOffsetsToTransaction``. The consumer must have a group, and must not commit itself.
        """
        if not self._in_transaction:
            raise InvalidStateError("send_offsets is for transactions", hint="use: with producer.transaction(): ...")
        chosen = consumer.positions if offsets is None else offsets
        if chosen:
            self._port.send_offsets(chosen, consumer.group_metadata())

    def poll(self) -> None:
        """Writes what has waited for ``linger_ms``, and calls what waits for deliveries."""
        self._check_open()
        self._port.poll()

    def flush(self) -> None:
        """Writes all that waits; raises what kept a record from being written since the last flush."""
        self._check_open()
        self._port.flush()

    def close(self) -> None:
        """Flushes and closes; safe to call twice."""
        if not self._closed:
            self._closed = True
            try:
                self._port.close()
            finally:
                if self._opened is not None:
                    self._opened.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidStateError("this producer is closed", hint="make another one")

    def _check_may_send(self) -> None:
        self._check_open()
        if self._transactional_id and not self._in_transaction:
            raise InvalidStateError("this producer only writes transactions", hint="with producer.transaction(): ...")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
