"""A producer for any topic log: single records and batches, partitioned as by Kafka, and transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import InvalidStateError, LogError
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.client_interfaces import Delivery, Headers, OnDelivery, ProducerOptions, ProducerRecord
from penstock.log.clients.dispatch import open_producer

if TYPE_CHECKING:
    from penstock.log.clients.consumer import Consumer

__all__ = ["Delivery", "Producer"]


class Producer:
    """Kafka's producer, for an embedded log or for Kafka. Threads may share it, and its transactions.

    Writes are idempotent: a retry writes nothing twice. Records wait until ``linger_ms`` has passed or a batch is full.
    With an embedded log, and in transactions, there is no background thread: ``send`` and ``poll`` check the clock, so
    call ``poll`` when the input pauses.

    Args:
        log: A log, or its URL (a file, or Kafka's ``host:port``).
        transactional_id: Makes all writes transactions; a newer producer of the same id fences this one.
        linger_ms: The time that a record may wait for others.
        batch_bytes: The size of a full batch.
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
        options = ProducerOptions(transactional_id, linger_ms, batch_bytes, dict(settings or {}))
        self._transactional_id = transactional_id
        self._lock = threading.RLock()  # callbacks may send
        self._client, self._opened = open_producer(log, options)
        self._closed = self._in_transaction = self._is_ending = False

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
        """Send one record, by default to the key's partition; without a key, to one partition per batch in turn.

        Args:
            topic: The topic.
            value: Bytes; None is a tombstone.
            key: Chooses the partition as Kafka's own producer does.
            timestamp: Milliseconds since the epoch; by default now.
            partition: Replaces the key's partition.
            headers: Pairs of a name and bytes.
            on_delivery: Called with the Delivery or the error, within a later call of this producer. What it raises is
                logged, as by Kafka's producer.
        """
        at = unix_ms() if timestamp is None else timestamp
        if at < 0:
            raise LogError(
                f"the timestamp {at} of a record for {topic!r} is before 1970",
                hint="Kafka's timestamps are milliseconds since 1970-01-01 UTC, 0 or more; None is now.",
                topic=topic,
            )
        pairs = None if headers is None else _pairs(topic, headers)
        record = ProducerRecord(topic, _kept(value), _kept(key), at, partition, pairs)
        with self._lock:
            self._check_may_send()
            self._client.send(record, on_delivery)

    def send_batch(self, topic: str, records: pa.RecordBatch) -> None:
        """Send many records (RECORD_SCHEMA without offset; key and headers may be absent) at once."""
        with self._lock:
            self._check_may_send()
            self._client.send_batch(topic, records)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction: its records and offsets become visible together when the block ends, or never.

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
            FencedError: A newer producer has this transactional id, or a partition belongs to another member.
        """
        with self._lock:
            self._check_open()
            if self._in_transaction:
                raise InvalidStateError("this producer is in a transaction", hint="end it before the next one")
            if not self._transactional_id:
                hint = "give Producer(transactional_id=...)"
                raise InvalidStateError("this producer has no transactional id", hint=hint)
            self._client.begin()
            self._in_transaction = True
        try:
            yield self
        except BaseException:
            self._end(self._client.abort)
            raise
        else:
            self._end(self._client.commit)

    def _end(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._is_ending = True
            try:
                end()
            finally:
                self._in_transaction = self._is_ending = False

    def send_offsets(self, consumer: Consumer, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit a consumer's offsets, by default its positions, in the transaction: exactly-once processing.

        Kafka's ``sendOffsetsToTransaction``. The consumer must have a group and must not commit itself.
        """
        with self._lock:
            self._check_in_transaction("use: with")
            chosen = consumer.positions if offsets is None else offsets
            if chosen:
                self._client.send_offsets(chosen, consumer.group_metadata())

    def send_offsets_of(self, group_metadata: object, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets in the transaction for a member of a group, named by its consumer's ``group_metadata``."""
        with self._lock:
            self._check_in_transaction("async with")
            if offsets:
                self._client.send_offsets(offsets, group_metadata)

    def _check_in_transaction(self, how: str) -> None:
        if not self._in_transaction:
            raise InvalidStateError("send_offsets is for transactions", hint=f"{how} producer.transaction(): ...")

    def poll(self) -> None:
        """Write records that have waited for ``linger_ms``, and call due ``on_delivery`` callbacks."""
        with self._lock:
            self._check_open()
            self._client.poll()

    def flush(self) -> None:
        """Write all waiting records; raises the error of a record that could not be written since the last flush."""
        with self._lock:
            self._check_open()
            self._client.flush()

    def close(self) -> None:
        """Flush and close; safe to call twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    self._client.close()
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
        if self._is_ending:
            raise InvalidStateError(
                "this producer is ending its transaction",
                hint="What on_delivery has to send belongs to the next transaction: keep it until then.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _kept(data: bytes | None) -> bytes | None:
    """Return bytes that stay as they are until they are written."""
    return bytes(data) if isinstance(data, bytearray | memoryview) else data


def _pairs(topic: str, headers: Headers) -> Headers:
    if isinstance(headers, Mapping):
        raise LogError(
            f"the headers of a record for {topic!r} are {with_article(type(headers).__name__)}, not pairs",
            hint="A name may occur several times: headers=list(names_and_values.items())",
            topic=topic,
        )
    return tuple(headers)
