"""Record batches to the leaders of their partitions, several requests on their way at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.record_batches import ProducerState, encode_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

    import pyarrow as pa

    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = ["Batches", "NotWrittenError", "ProduceLimits"]

_ALL_REPLICAS = -1
_LARGEST_SEQUENCE = 0x7FFFFFFF
_IN_FLIGHT = 5  # what brokers promise to keep in order for an idempotent producer


class ProduceLimits:
    """Sizes of what is sent.

    Args:
        batch_bytes: Of one record batch, unless a single record is larger.
        record_bytes: Of a single record's batch; what is larger is refused here, as the broker would.
        request_bytes: Of one request.
        timeout_ms: How long a leader waits for its replicas.
        codec: Number of the compression codec.
    """

    __slots__ = ("batch_bytes", "codec", "record_bytes", "request_bytes", "timeout_ms")

    def __init__(
        self,
        batch_bytes: int = 900_000,
        record_bytes: int = 1 << 20,
        request_bytes: int = 8 << 20,
        timeout_ms: int = 30_000,
        codec: int = 0,
    ) -> None:
        self.batch_bytes = batch_bytes
        self.record_bytes = record_bytes
        self.request_bytes = request_bytes
        self.timeout_ms = timeout_ms
        self.codec = codec


class NotWrittenError(KafkaException):  # type: ignore[misc] # the client has no types
    """A leader has refused a batch.

    Attributes:
        place: The topic partition.
    """

    def __init__(self, code: int, place: TopicPartition) -> None:
        text = f"writing to {place.topic}-{place.partition}: {KafkaError(code).str()}"
        super().__init__(KafkaError(code, text))
        self.place = place


class Batches:
    """Encoded record batches that leaders have still to accept, each partition's in order.

    Args:
        parts: Records by partition; a partition may come several times.
        limits: Sizes.
        state: Producer id and epoch.
        sequences: The next sequence of each partition; moved on.
    """

    def __init__(
        self,
        parts: Iterable[tuple[TopicPartition, pa.RecordBatch]],
        limits: ProduceLimits,
        state: ProducerState,
        sequences: MutableMapping[TopicPartition, int],
    ) -> None:
        self._limits = limits
        self._waiting: list[_Batch] = []
        self.offsets: dict[TopicPartition, int] = {}
        for place, records in parts:
            first = ProducerState(state.producer_id, state.epoch, sequences.get(place, 0), state.transactional)
            for data, count in encode_batches(records, limits.batch_bytes, limits.codec, first):
                if len(data) > limits.record_bytes:
                    raise NotWrittenError(KafkaError.MSG_SIZE_TOO_LARGE, place)
                self._waiting.append(_Batch(place, data))
                sequences[place] = (sequences.get(place, 0) + count) & _LARGEST_SEQUENCE

    def send(self, cluster: Cluster, transactional_id: str | None) -> None:
        """Sends all that is not accepted yet, and waits until all replicas in sync have it.

        After an error it may be called again: what a broker has already is not written twice. `offsets` has the first
        offset of each partition.

        Raises:
            NotWrittenError: A leader has refused a batch.
            KafkaException: As librdkafka's producer raises it.
        """
        by_leader: dict[int, tuple[BrokerConnection, deque[_Batch]]] = {}
        for batch in self._waiting:
            connection = cluster.leader(batch.place)
            by_leader.setdefault(id(connection), (connection, deque()))[1].append(batch)
        try:
            for connection, waiting in by_leader.values():
                try:
                    self._send_all(connection, waiting, transactional_id)
                except BaseException:
                    connection.close()  # answers may still be to come
                    raise
        finally:
            self._waiting = [batch for batch in self._waiting if not batch.accepted]

    def _send_all(self, connection: BrokerConnection, waiting: deque[_Batch], transactional_id: str | None) -> None:
        on_their_way: deque[tuple[int, dict[TopicPartition, _Batch]]] = deque()
        while waiting or on_their_way:
            while waiting and len(on_their_way) < _IN_FLIGHT:
                batches = _next_request(waiting, self._limits.request_bytes)
                on_their_way.append((connection.send(_request(batches, self._limits, transactional_id)), batches))
            number, sent = on_their_way.popleft()
            for topic in connection.receive(number).responses:
                for each in topic.partition_responses:
                    place = TopicPartition(topic.name, each.index)
                    if each.error_code not in (0, KafkaError.DUPLICATE_SEQUENCE_NUMBER):
                        raise NotWrittenError(each.error_code, place)
                    sent[place].accepted = True
                    self.offsets.setdefault(place, each.base_offset)


@dataclass(slots=True)
class _Batch:
    place: TopicPartition
    data: bytes
    accepted: bool = False


def _next_request(waiting: deque[_Batch], most_bytes: int) -> dict[TopicPartition, _Batch]:
    """The next batches that go together: one a partition, as Kafka wants it."""
    chosen: dict[TopicPartition, _Batch] = {}
    size = 0
    while waiting and waiting[0].place not in chosen and (not chosen or size + len(waiting[0].data) <= most_bytes):
        batch = waiting.popleft()
        chosen[batch.place] = batch
        size += len(batch.data)
    return chosen


def _request(batches: Mapping[TopicPartition, _Batch], limits: ProduceLimits, transactional_id: str | None) -> Any:
    from kafka.protocol.producer import ProduceRequest

    topic = ProduceRequest.TopicProduceData
    topics: dict[str, list[Any]] = {}
    for place, batch in batches.items():
        partition = topic.PartitionProduceData(index=place.partition, records=batch.data)
        topics.setdefault(place.topic, []).append(partition)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL_REPLICAS,
        timeout_ms=limits.timeout_ms,
        topic_data=[topic(name=name, partition_data=each) for name, each in topics.items()],
        min_version=3,
        max_version=11,  # from 12 on a transaction's partitions need not be told before, from 13 topics go by their ids
    )
