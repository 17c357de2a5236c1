"""The producer of Kafka: librdkafka's producer as a LogProducer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from penstock.errors import LogError, PenstockError
from penstock.log.base import TopicPartition
from penstock.log.kafka.clients.deliveries import Deliveries, enqueue, flush
from penstock.log.kafka.clients.transactional_producer import timed_out
from penstock.log.kafka.failures import error_of, failure, is_fenced, too_large_here
from penstock.log.kafka.writing import AnyPart, checked
from penstock.log.producer_interface import (
    Delivery,
    OnDelivery,
    ProducerOptions,
    ProducerRecord,
    as_batch,
    call_back,
    parts_of,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.log.kafka.clients.connections import Clients

__all__ = ["KafkaProducer"]

_T = TypeVar("_T")
_REQUEST_S = 30.0
_CONNECT_S = 10.0
_FULL_PAUSE_S = 0.05
_NO_PARTITION = -1


class KafkaProducer:
    """The producer of Kafka, a `LogProducer`; transactional only for settings that no other client obeys.

    To librdkafka the timestamp 0 means the present time. Records of 1970-01-01 00:00 are written by column instead,
    after all earlier ones.

    Args:
        clients: The clients of the log.
        partitions: Returns a topic's number of partitions.
        write_plainly: Writes records by column, and returns the first offset of each partition.
        options: The settings of the producer.
    """

    def __init__(
        self,
        clients: Clients,
        partitions: Callable[[str], int],
        write_plainly: Callable[[Sequence[AnyPart]], dict[TopicPartition, int]],
        options: ProducerOptions,
    ) -> None:
        self._partitions = partitions
        self._write_plainly = write_plainly
        self._clients = clients
        self._timeouts = clients.timeouts
        self._patience_s = clients.patience_s
        self._deliveries = Deliveries(clients.access, clients.max_request_bytes)
        own = {"linger.ms": options.linger_ms, "batch.size": options.batch_bytes, "partitioner": "murmur2_random"}
        self._client = clients.producer(self._deliveries, options.transactional_id, reports_all=True, own=own)
        self._counts: dict[str, int] = {}
        self._turn = 0
        self._transactional = bool(options.transactional_id)
        self._began = time.monotonic()
        if self._transactional:
            self._do(self._initialise, f"starting the producer {options.transactional_id!r}")

    def _initialise(self) -> None:
        """Fence all earlier producers of this id. Without a connection the client would first wait half a second."""
        self._client.list_topics(timeout=_CONNECT_S)
        self._client.init_transactions(_REQUEST_S)

    def send(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> None:
        topic, value, key, timestamp, partition, headers = record
        if timestamp == 0:
            self._send_of_1970(record, on_delivery)
            return
        more: dict[str, Any] = {} if on_delivery is None else {"on_delivery": self._reporter(on_delivery)}
        number = _NO_PARTITION if partition is None else partition

        def put() -> bool:
            try:
                self._client.produce(
                    topic, value, key, number, timestamp=timestamp, headers=list(headers or ()), **more
                )
            except BufferError:
                return False
            except KafkaException as error:
                if error_of(error).code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                size = len(key or b"") + len(value or b"")  # no broker has seen it
                limit = self._clients.max_request_bytes
                raise too_large_here(f"writing to {topic}", size, limit, topic=topic) from error
            return True

        while not self._do(put, f"writing to {topic}"):
            self._client.poll(_FULL_PAUSE_S)
            self._deliveries.check()  # a queue that stays full because nothing can be delivered
        self._client.poll(0)

    def send_batch(self, topic: str, records: pa.RecordBatch) -> None:
        for partition, part in self._parts(topic, records):
            if "timestamp" in part.schema.names and pc.any(pc.equal(part.column("timestamp"), 0)).as_py():
                self._write(topic, partition, part)
            else:
                enqueue(self._client, (topic, partition, part), self._deliveries)

    def _parts(self, topic: str, records: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if topic not in self._counts:
            self._counts[topic] = self._partitions(topic)
        self._turn += 1
        return parts_of(records, self._counts[topic], self._turn)

    def _send_of_1970(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> None:
        topic, records = record.topic, as_batch([record])
        parts = self._parts(topic, records) if record.partition is None else [(record.partition, records)]
        for partition, part in parts:
            offset = self._write(topic, partition, part)
            if on_delivery is not None:
                call_back(on_delivery, Delivery(topic, partition, offset, record.timestamp), None)

    def _write(self, topic: str, partition: int, records: pa.RecordBatch) -> int:
        """Write records by column, after all that are waiting; return the offset of the first."""
        if self._transactional:
            names = ", ".join(self._clients.only_of_librdkafka())
            raise LogError(
                f"a record for {topic}-{partition} has the timestamp 0, which transactions cannot write with {names}",
                hint="Kafka's C client, which alone obeys such settings, takes it for the present time. Leave them "
                "out, or write the record outside a transaction.",
                topic=topic, partition=partition,
            )  # fmt: skip
        self._client.flush(self._patience_s)
        return self._write_plainly([(topic, partition, checked(topic, partition, records))])[
            TopicPartition(topic, partition)
        ]

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
        self._began = time.monotonic()

    def commit(self) -> None:
        try:
            self._do(lambda: self._client.commit_transaction(_REQUEST_S), "committing a transaction")
        except PenstockError:
            with suppress(PenstockError):  # a fenced producer has nothing left to abort
                self.abort()
            if self._deliveries.first is not None and not is_fenced(self._deliveries.first[0]):
                self._deliveries.check()  # says more than that the transaction failed
            raise
        self._do(lambda: self._client.poll(0), "committing a transaction")  # calls on_delivery

    def abort(self) -> None:
        try:
            self._client.abort_transaction(_REQUEST_S)
        except KafkaException as error:
            if not error_of(error).fatal():
                raise self._failed(error, "aborting a transaction") from error

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: object) -> None:
        entries = [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        self._do(
            lambda: self._client.send_offsets_to_transaction(entries, group_metadata, _REQUEST_S),
            "committing offsets with a transaction",
        )

    def close(self) -> None:
        if not self._transactional:
            self.flush()

    def _reporter(self, on_delivery: OnDelivery) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            self._deliveries(error, message)
            if error is not None:
                problem = self._failed(error, f"writing to {message.topic()}", topic=message.topic())
                call_back(on_delivery, None, problem)
                return
            delivery = Delivery(message.topic(), message.partition(), message.offset(), message.timestamp()[1])
            call_back(on_delivery, delivery, None)

        return report

    def _do(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except KafkaException as error:
            raise self._failure(error, doing) from error
        except SystemError as error:  # the client library calls back while it raises a fatal error
            if isinstance(error.__cause__, KafkaException):
                raise self._failure(error.__cause__, doing) from error
            raise

    def _failure(self, error: KafkaException, doing: str) -> PenstockError:
        """Return the error to raise; a transaction that has timed out is not fenced by another producer."""
        problem = self._failed(error, doing)
        if self._transactional and is_fenced(error):
            return timed_out(doing, self._began, self._timeouts.least_ms, problem) or problem
        return problem

    def _failed(self, error: KafkaException | KafkaError, doing: str, **facts: object) -> PenstockError:
        return failure(error, doing, self._clients.access, operation="WRITE", **facts)
