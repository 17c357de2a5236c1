"""Sending of record batches to the leaders of their partitions, and idempotent writes, which write no record twice."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from crc32c import crc32c

from penstock.log.base import TopicPartition
from penstock.log.client_counts import count as count_one
from penstock.log.client_counts import count_many
from penstock.log.kafka.client_settings import REQUEST_TIMEOUT_MS
from penstock.log.kafka.wire.batch_format import AFTER_CRC, CODEC, HEADER, MAGIC, TRANSACTIONAL
from penstock.log.kafka.wire.batch_reader import BatchHead
from penstock.log.kafka.wire.connection import check
from penstock.log.kafka.wire.few_records import FEW
from penstock.log.kafka.wire.record_batches import NO_PRODUCER, ProducerState, encode_batches
from penstock.log.stored_batches import StoredRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, MutableMapping

    from numpy.typing import NDArray

    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.connection import BrokerConnection
    from penstock.log.stored_batches import StoredBatch

__all__ = [
    "ADDS_PARTITIONS",
    "IdempotentWriter",
    "NotWrittenError",
    "ProduceLimits",
    "ProduceRequests",
    "given_to",
    "new_producer_request",
]


def given_to(producer: ProducerState, batches: Sequence[StoredBatch]) -> Iterator[tuple[bytes, int]]:
    """Yield batches as those of another producer, each with its number of records; the records stay as they are."""
    sequence = producer.sequence
    for batch in batches:
        head = BatchHead._make(HEADER.unpack_from(batch.data))
        attributes = head.attributes & CODEC | (TRANSACTIONAL if producer.transactional else 0)
        identity = producer.producer_id, producer.epoch, sequence
        after = AFTER_CRC.pack(attributes, head.last, head.first_ms, head.last_ms, *identity, head.records)
        body = memoryview(batch.data)[HEADER.size :]
        front = struct.pack(">qiibI", 0, head.length, -1, MAGIC, crc32c(body, crc32c(after)))
        yield b"".join((front, after, body)), batch.count
        if sequence >= 0:
            sequence = (sequence + batch.count) & _LARGEST_SEQUENCE


ADDS_PARTITIONS = 12  # from this version on, requests add their partitions to the transaction

_BYTES = pa.large_binary()
_ALL_REPLICAS = -1
_LARGEST_SEQUENCE = 0x7FFFFFFF
_IN_FLIGHT = 5  # brokers keep so many in order for an idempotent producer


class ProduceLimits:
    """The limits of produce requests.

    Args:
        batch_bytes: The size of a record batch, unless a single record is larger.
        record_bytes: The size of a single record's batch; a larger one is refused here, as by the broker.
        request_bytes: The size of a request.
        timeout_ms: The time that a leader waits for its replicas: ``request.timeout.ms``.
        codec: The number of the compression codec.
    """

    __slots__ = ("batch_bytes", "codec", "record_bytes", "request_bytes", "timeout_ms")

    def __init__(
        self,
        batch_bytes: int = 900_000,
        record_bytes: int = 1 << 20,
        request_bytes: int = 8 << 20,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        codec: int = 0,
    ) -> None:
        self.batch_bytes = batch_bytes
        self.record_bytes = record_bytes
        self.request_bytes = request_bytes
        self.timeout_ms = timeout_ms
        self.codec = codec


class NotWrittenError(KafkaException):  # type: ignore[misc] # the client has no types
    """A leader has refused a batch, or it is too large to be sent.

    Attributes:
        tp: The topic partition.
        size_bytes: The size of a batch that is too large to be sent.
        limit_bytes: The limit of this client; 0: a leader has refused it.
    """

    def __init__(self, code: int, tp: TopicPartition, size_bytes: int = 0, limit_bytes: int = 0) -> None:
        text = f"writing to {tp.topic}-{tp.partition}: {KafkaError(code).str()}"
        super().__init__(KafkaError(code, text))
        self.tp = tp
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class ProducedStretch(NamedTuple):
    """Records that have offsets one after the other.

    Attributes:
        first: The offset of the first; -1: unknown, after a duplicate of long ago.
        records: Their number.
        appended_ms: Their timestamps, if the topic has ``message.timestamp.type=LogAppendTime``; else -1.
    """

    first: int
    records: int
    appended_ms: int


class ProduceRequests:
    """The requests that write records: encoded record batches that are not accepted yet, each partition's in order.

    Args:
        parts: Records by partition; a partition may come several times.
        limits: Size limits.
        state: Producer id and epoch.
        sequences: The next sequence of each partition; updated.

    Attributes:
        offsets: The first offset of each partition, once it is accepted.
        following: The offset after the last accepted record of each partition, where it is known.
    """

    def __init__(
        self,
        parts: Iterable[tuple[TopicPartition, pa.RecordBatch | StoredRecords]],
        limits: ProduceLimits,
        state: ProducerState,
        sequences: MutableMapping[TopicPartition, int],
    ) -> None:
        self._limits = limits
        self._waiting: list[_Batch] = []
        self._leaders: list[_LeaderRequests] = []
        self._was_sent = False
        self.offsets: dict[TopicPartition, int] = {}
        self.following: dict[TopicPartition, int] = {}
        self._answers: list[tuple[TopicPartition, Any, int]] = []  # to accepted batches
        for tp, records in parts:
            first = ProducerState(state.producer_id, state.epoch, sequences.get(tp, 0), state.transactional)
            for data, count in _encoded(tp.topic, records, limits, first):
                count_one("producer", "batch-bytes", len(data), topic=tp.topic)
                if len(data) > limits.record_bytes:
                    raise NotWrittenError(
                        KafkaError.MSG_SIZE_TOO_LARGE, tp, size_bytes=len(data), limit_bytes=limits.record_bytes
                    )
                self._waiting.append(_Batch(tp, data, count))
                sequences[tp] = (sequences.get(tp, 0) + count) & _LARGEST_SEQUENCE

    def stretches(self) -> dict[TopicPartition, list[ProducedStretch]]:
        """Return the accepted batches of each partition, in order."""
        stretches: dict[TopicPartition, list[ProducedStretch]] = {}
        for tp, answer, count in self._answers:
            stretches.setdefault(tp, []).append(ProducedStretch(answer.base_offset, count, answer.log_append_time_ms))
        return stretches

    def send(self, cluster: Cluster, transactional_id: str | None) -> None:
        """Send all batches that are not accepted yet, and wait until all in-sync replicas have them.

        After an error it may be called again: no batch is written twice.

        Raises:
            NotWrittenError: A leader has refused a batch.
            KafkaException: Like librdkafka's producer.
        """
        self.start(cluster, transactional_id)
        self.finish()

    def start(self, cluster: Cluster, transactional_id: str | None) -> None:
        """Send as many batches as may be in flight; `finish`, or `abandon`, comes next."""
        self._queue(cluster, transactional_id, ADDS_PARTITIONS - 1)
        try:
            for leader in self._leaders:
                leader.fill()
        except BaseException:
            self.abandon()
            raise

    def start_in_turn(self, cluster: Cluster, transactional_id: str, next_to: BrokerConnection | None) -> None:
        """Like `start`, for the first records of a transaction that are to add their partitions to it.

        A coordinator adds partitions for one broker at a time; the others are refused, and try again after 20 ms
        (``add.partitions.to.txn.retry.backoff.ms``). So a leader gets its first request when the one before has
        answered. Requests of one connection are worked off one after the other anyway.

        Args:
            cluster: The connections.
            transactional_id: Kafka's ``transactional.id``.
            next_to: The connection of the request that follows; None: none follows that adds anything.
        """
        self._queue(cluster, transactional_id, ADDS_PARTITIONS)
        self._leaders.sort(key=lambda leader: leader.connection is next_to)
        try:
            for number, leader in enumerate(self._leaders, 1):
                leader.fill(1)
                is_last = number == len(self._leaders)
                if not is_last or next_to not in (None, leader.connection):
                    self._accept(*leader.receive())
            for leader in self._leaders:
                leader.fill()
        except BaseException:
            self.abandon()
            raise

    def _queue(self, cluster: Cluster, transactional_id: str | None, most_version: int) -> None:
        """Put the batches that are not accepted yet together by leader."""
        self._waiting = [batch for batch in self._waiting if not batch.accepted]
        leaders: dict[BrokerConnection, _LeaderRequests] = {}
        for batch in self._waiting:
            if self._was_sent:
                count_one("producer", "retried-records", batch.count, topic=batch.tp.topic)
            connection = cluster.leader(batch.tp)
            leader = leaders.get(connection)
            if leader is None:
                leader = _LeaderRequests(connection, self._limits, transactional_id, most_version)
                leaders[connection] = leader
            leader.waiting.append(batch)
        self._leaders, self._was_sent = list(leaders.values()), True

    def finish(self) -> None:
        """Send the rest, and wait until all in-sync replicas have them; see `send`."""
        try:
            while any(leader.sent for leader in self._leaders):
                for leader in self._leaders:
                    if leader.sent:
                        self._accept(*leader.receive())
                        leader.fill()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Close the connections from which answers are still to come."""
        for leader in self._leaders:
            if leader.sent:
                leader.connection.close()
        self._leaders = []

    def accepted(self) -> dict[TopicPartition, int]:
        """Return the number of records of each partition that are accepted, its first ones."""
        records: dict[TopicPartition, int] = {}
        for tp, _, count in self._answers:
            records[tp] = records.get(tp, 0) + count
        return records

    def _accept(self, sent: dict[TopicPartition, _Batch], answer: Any) -> None:
        refusal: NotWrittenError | None = None
        for topic in answer.responses:
            for each in topic.partition_responses:
                tp = TopicPartition(topic.name, each.index)
                if each.error_code not in (0, KafkaError.DUPLICATE_SEQUENCE_NUMBER):
                    refusal = refusal or NotWrittenError(each.error_code, tp)
                    continue
                sent[tp].accepted = True
                self._answers.append((tp, each, sent[tp].count))
                self.offsets.setdefault(tp, each.base_offset)
                if each.base_offset >= 0:  # unknown after a duplicate of long ago
                    self.following[tp] = each.base_offset + sent[tp].count
                else:
                    self.following.pop(tp, None)
        if refusal is not None:
            raise refusal


def _encoded(
    topic: str, records: pa.RecordBatch | StoredRecords, limits: ProduceLimits, producer: ProducerState
) -> Iterable[tuple[bytes, int]]:
    if isinstance(records, StoredRecords):
        return given_to(producer, records.batches)
    _count_records(topic, records)
    packed = partial(_count_packed, topic)
    return encode_batches(records, limits.batch_bytes, limits.codec, producer, packed)


class _LeaderRequests:
    """The requests to one leader.

    Attributes:
        waiting: Batches that are not sent yet.
        sent: The requests in flight: their numbers, and their batches.
    """

    def __init__(
        self, connection: BrokerConnection, limits: ProduceLimits, transactional_id: str | None, most_version: int
    ) -> None:
        self.connection = connection
        self.waiting: deque[_Batch] = deque()
        self.sent: deque[tuple[int, dict[TopicPartition, _Batch]]] = deque()
        self._limits = limits
        self._id = transactional_id
        self._most_version = most_version

    def fill(self, most: int = _IN_FLIGHT) -> None:
        """Send batches until enough are in flight."""
        while self.waiting and len(self.sent) < most:
            batches = _next_request(self.waiting, self._limits.request_bytes)
            request = _request(batches, self._limits, self._id, self._most_version)
            self.sent.append((self.connection.send(request), batches))

    def receive(self) -> tuple[dict[TopicPartition, _Batch], Any]:
        """Return the batches of the oldest request, and its answer."""
        number, batches = self.sent[0]
        answer = self.connection.receive(number)
        self.sent.popleft()
        return batches, answer


@dataclass(slots=True)
class _Batch:
    tp: TopicPartition
    data: bytes
    count: int
    accepted: bool = False


def _count_records(topic: str, records: pa.RecordBatch) -> None:
    """Count the bytes of keys and values, by their offsets: for a few records Arrow's functions take much longer."""
    if records.num_rows:
        keys, values = _ends(records.column("key")), _ends(records.column("value"))
        if records.num_rows <= FEW:  # NumPy's functions take as long to begin
            ends = [key + value for key, value in zip(keys.tolist(), values.tolist(), strict=True)]
            few = [after - before for before, after in pairwise(ends)]
            spread = float(sum(few)), float(min(few)), float(max(few))
        else:
            sizes = np.diff(keys) + np.diff(values)
            spread = float(sizes.sum()), float(sizes.min()), float(sizes.max())
        count_many("producer", "record-bytes", topic, records.num_rows, spread)


def _ends(column: pa.Array) -> NDArray[np.int64]:
    if column.type != _BYTES:
        column = column.cast(_BYTES)
    offsets = column.buffers()[1]
    return np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)


def _count_packed(topic: str, packed: int, raw: int) -> None:
    count_one("producer", "compression", packed / raw, topic=topic)


def _next_request(waiting: deque[_Batch], most_bytes: int) -> dict[TopicPartition, _Batch]:
    """Choose the batches of the next request: one per partition, as Kafka requires."""
    chosen: dict[TopicPartition, _Batch] = {}
    size = 0
    while waiting and waiting[0].tp not in chosen and (not chosen or size + len(waiting[0].data) <= most_bytes):
        batch = waiting.popleft()
        chosen[batch.tp] = batch
        size += len(batch.data)
    return chosen


def _request(
    batches: Mapping[TopicPartition, _Batch], limits: ProduceLimits, transactional_id: str | None, most_version: int
) -> Any:
    from kafka.protocol.producer import ProduceRequest

    topic = ProduceRequest.TopicProduceData
    topics: dict[str, list[Any]] = {}
    for tp, batch in batches.items():
        partition = topic.PartitionProduceData(index=tp.partition, records=batch.data)
        topics.setdefault(tp.topic, []).append(partition)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL_REPLICAS,
        timeout_ms=limits.timeout_ms,
        topic_data=[topic(name=name, partition_data=each) for name, each in topics.items()],
        min_version=3,
        max_version=most_version,  # from 13 on topics go by ids
    )


_ANY_TIMEOUT_MS = 60_000


class IdempotentWriter:
    """A producer without a transactional id; not thread-safe.

    Args:
        cluster: The cluster.
        limits: Size limits of requests.
    """

    def __init__(self, cluster: Cluster, limits: ProduceLimits) -> None:
        self._cluster = cluster
        self._limits = limits
        self._state: ProducerState | None = None
        self._going: ProducerState | None = None
        self._is_sent = False
        self._sequences: dict[TopicPartition, int] = {}

    def write(
        self,
        parts: Iterable[tuple[TopicPartition, pa.RecordBatch | StoredRecords]],
        patiently: Callable[[Callable[[], None]], None],
    ) -> ProduceRequests:
        """Write all parts and return them with their offsets; see `begin` and `finish`."""
        batches = self.begin(parts, patiently)
        self.finish(batches, patiently)
        return batches

    def begin(
        self,
        parts: Iterable[tuple[TopicPartition, pa.RecordBatch | StoredRecords]],
        patiently: Callable[[Callable[[], None]], None],
    ) -> ProduceRequests:
        """Send all parts without waiting for the answers, which `finish` does; it must come before the next `begin`.

        Args:
            parts: Records by partition; a partition may come several times.
            patiently: Calls a function, with retries after temporary failures.

        Raises:
            KafkaException: Like librdkafka's producer, also for a batch that is too large. Nothing has been written.
        """
        if self._state is None:
            patiently(self._init)
        self._going, self._state = self._state, None  # after an error the next sequence is unknown
        assert self._going is not None  # noqa: S101 - _init has set it
        batches = ProduceRequests(parts, self._limits, self._going, self._sequences)
        self._is_sent = True
        try:
            batches.start(self._cluster, None)
        except KafkaException:
            self._is_sent = False
        return batches

    def finish(self, batches: ProduceRequests, patiently: Callable[[Callable[[], None]], None]) -> None:
        """Wait until all batches of `begin` are written; they have their offsets then.

        Raises:
            KafkaException: Like librdkafka's producer. Some records may have been written.
        """

        def write() -> None:
            is_sent, self._is_sent = self._is_sent, False
            if is_sent:
                batches.finish()
            else:
                batches.send(self._cluster, None)

        patiently(write)
        self._state = self._going

    def _init(self) -> None:
        answer = self._cluster.any_broker().ask(new_producer_request(None, _ANY_TIMEOUT_MS))
        check(answer.error_code, "asking for a producer id")
        self._state = ProducerState(answer.producer_id, answer.producer_epoch, 0)
        self._sequences = {}


def new_producer_request(transactional_id: str | None, timeout_ms: int, own: ProducerState = NO_PRODUCER) -> Any:
    """Make a request for a producer id, or for the next epoch of a transactional id.

    Args:
        transactional_id: The transactional id.
        timeout_ms: The time-out of its transactions.
        own: The producer that wants to go on: a newer one is not fenced, but fences it (KIP-360).
    """
    from kafka.protocol.producer import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=own.producer_id,
        producer_epoch=own.epoch,
        min_version=0 if own is NO_PRODUCER else 3,
        max_version=4,
    )
