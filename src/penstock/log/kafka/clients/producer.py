"""The producer of Kafka: librdkafka's producer as a LogProducer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from penstock.base.clock import unix_ms
from penstock.errors import LogError, PenstockError
from penstock.log.base import TopicPartition
from penstock.log.client_interfaces import (
    Delivery,
    OnDelivery,
    ProducerOptions,
    ProducerRecord,
    as_batch,
    call_back,
    parts_of,
)
from penstock.log.kafka.clients.transactional_producer import timed_out
from penstock.log.kafka.error_codes import LocalCode
from penstock.log.kafka.failures import error_of, failure, is_fenced, too_large_here
from penstock.log.kafka.writing import AnyPart, Part, checked

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

    from penstock.log.kafka.clients.connections import Clients
    from penstock.log.kafka.refused_access import ClusterAccess

__all__ = ["Deliveries", "KafkaProducer", "enqueue", "enqueue_to", "flush"]

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


_T = TypeVar("_T")
_REQUEST_S = 30.0
_CONNECT_S = 10.0
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
