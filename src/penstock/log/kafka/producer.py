"""How a producer writes to Kafka: librdkafka's producer behind the seam of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from penstock.errors import PenstockError
from penstock.log.base import TopicPartition
from penstock.log.kafka.deliveries import Deliveries, enqueue, flush
from penstock.log.kafka.failures import error_of, failure, is_fenced
from penstock.log.producing import Delivery, Headers, OnDelivery, parts_of

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.log.kafka.log import KafkaLog

__all__ = ["KafkaProducer"]

_T = TypeVar("_T")
_REQUEST_S = 30.0
_CONNECT_S = 10.0
_FULL_PAUSE_S = 0.05
_NO_PARTITION = -1


class KafkaProducer:
    """A ProducerPort over Kafka."""

    def __init__(self, log: KafkaLog, transactional_id: str, linger_ms: int, batch_bytes: int) -> None:
        self._log = log
        self._patience_s = log.patience_s
        self._deliveries = Deliveries()
        own = {"linger.ms": linger_ms, "batch.size": batch_bytes, "partitioner": "murmur2_random"}  # as Java's
        self._client = log.clients.producer(self._deliveries, transactional_id, reports_all=True, own=own)
        self._counts: dict[str, int] = {}
        self._turn = 0
        self._transactional = bool(transactional_id)
        if self._transactional:
            self._do(self._initialise, f"starting the producer {transactional_id!r}")

    def _initialise(self) -> None:
        """Fences all earlier producers of this id. Without a connection the client would wait half a second first."""
        self._client.list_topics(timeout=_CONNECT_S)
        self._client.init_transactions(_REQUEST_S)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int,
        partition: int | None,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
    ) -> None:
        more: dict[str, Any] = {} if on_delivery is None else {"on_delivery": self._teller(on_delivery)}
        number = _NO_PARTITION if partition is None else partition

        def put() -> bool:
            try:
                self._client.produce(
                    topic, value, key, number, timestamp=timestamp, headers=list(headers or ()), **more
                )
            except BufferError:
                return False
            return True

        while not self._do(put, f"writing to {topic}"):
            self._client.poll(_FULL_PAUSE_S)
            self._deliveries.check()  # a queue that stays full because nothing can be delivered
        self._client.poll(0)

    def send_batch(self, topic: str, records: pa.RecordBatch) -> None:
        if topic not in self._counts:
            self._counts[topic] = self._log.partitions(topic)
        self._turn += 1
        for partition, part in parts_of(records, self._counts[topic], self._turn):
            enqueue(self._client, (topic, partition, part), self._deliveries)

    def poll(self) -> None:
        self._client.poll(0)

    def flush(self) -> None:
        try:
            flush(self._client, self._deliveries, self._patience_s)
        finally:
            self._deliveries.forget()
            self._counts.clear()  # partitions may be added at any time

    def begin(self) -> None:
        self._deliveries.forget()
        self._do(self._client.begin_transaction, "beginning a transaction")

    def commit(self) -> None:
        try:
            self._do(lambda: self._client.commit_transaction(_REQUEST_S), "committing a transaction")
        except PenstockError:
            with suppress(PenstockError):  # a fenced producer has nothing left to abort
                self.abort()
            if self._deliveries.first is not None and not is_fenced(self._deliveries.first[0]):
                self._deliveries.check()  # says more than that the transaction failed
            raise
        self._do(lambda: self._client.poll(0), "committing a transaction")  # for those who wait for deliveries

    def abort(self) -> None:
        try:
            self._client.abort_transaction(_REQUEST_S)
        except KafkaException as error:
            if not error_of(error).fatal():
                raise failure(error, "aborting a transaction") from error

    def send_offsets(self, offsets: Mapping[TopicPartition, int], who: object) -> None:
        entries = [KafkaTopicPartition(place.topic, place.partition, offset) for place, offset in offsets.items()]
        self._do(
            lambda: self._client.send_offsets_to_transaction(entries, who, _REQUEST_S),
            "committing offsets with a transaction",
        )

    def close(self) -> None:
        if not self._transactional:
            self.flush()

    def _teller(self, on_delivery: OnDelivery) -> Callable[[KafkaError | None, Message], None]:
        def tell(error: KafkaError | None, message: Message) -> None:
            self._deliveries(error, message)
            if error is not None:
                on_delivery(None, failure(error, f"writing to {message.topic()}"))
                return
            place = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
            on_delivery(Delivery(*place), None)

        return tell

    def _do(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except KafkaException as error:
            raise failure(error, doing) from error
        except SystemError as error:  # the client library calls back while it raises a fatal error
            if isinstance(error.__cause__, KafkaException):
                raise failure(error.__cause__, doing) from error
            raise
