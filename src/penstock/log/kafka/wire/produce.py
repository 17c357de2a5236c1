"""Record batches to the leaders of their partitions, several requests on their way at once."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.log.kafka.wire.errors import check
from penstock.log.kafka.wire.record_batches import ProducerState, encode_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping

    import pyarrow as pa

    from penstock.log.base import TopicPartition
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = ["ProduceLimits", "produce"]

_ALL_REPLICAS = -1
_IN_FLIGHT = 5  # what brokers promise to keep in order for an idempotent producer


class ProduceLimits:
    """Sizes of what is sent.

    Args:
        batch_bytes: Of one record batch; brokers refuse more than the topic's ``max.message.bytes``.
        request_bytes: Of one request.
        timeout_ms: How long a leader waits for its replicas.
        codec: Number of the compression codec.
    """

    __slots__ = ("batch_bytes", "codec", "request_bytes", "timeout_ms")

    def __init__(
        self, batch_bytes: int = 900_000, request_bytes: int = 8 << 20, timeout_ms: int = 30_000, codec: int = 0
    ) -> None:
        self.batch_bytes = batch_bytes
        self.request_bytes = request_bytes
        self.timeout_ms = timeout_ms
        self.codec = codec


def produce(
    cluster: Cluster,
    parts: Iterable[tuple[TopicPartition, pa.RecordBatch]],
    limits: ProduceLimits,
    state: ProducerState,
    sequences: MutableMapping[TopicPartition, int],
    transactional_id: str | None,
) -> dict[TopicPartition, int]:
    """Writes the records, each part in order, and waits until all replicas in sync have them.

    Args:
        cluster: Where to.
        parts: Records by partition; a partition may come several times.
        limits: Sizes.
        state: Producer id and epoch.
        sequences: The next sequence of each partition; moved on.
        transactional_id: Of the open transaction, if there is one.

    Returns:
        The first offset of each partition.

    Raises:
        KafkaException: As librdkafka's producer raises it. What was written is unknown then.
    """
    by_leader: dict[int, tuple[BrokerConnection, deque[tuple[TopicPartition, bytes]]]] = {}
    for tp, records in parts:
        connection = cluster.leader(tp)
        _, waiting = by_leader.setdefault(id(connection), (connection, deque()))
        first = ProducerState(state.producer_id, state.epoch, sequences.get(tp, 0), state.transactional)
        for data, count in encode_batches(records, limits.batch_bytes, limits.codec, first):
            waiting.append((tp, data))
            sequences[tp] = (sequences.get(tp, 0) + count) & 0x7FFFFFFF
    offsets: dict[TopicPartition, int] = {}
    for connection, waiting in by_leader.values():
        try:
            _send_all(connection, waiting, limits, transactional_id, offsets)
        except BaseException:
            connection.close()  # answers may still be to come
            raise
    return offsets


def _send_all(
    connection: BrokerConnection,
    waiting: deque[tuple[TopicPartition, bytes]],
    limits: ProduceLimits,
    transactional_id: str | None,
    offsets: dict[TopicPartition, int],
) -> None:
    on_their_way: deque[int] = deque()
    while waiting or on_their_way:
        while waiting and len(on_their_way) < _IN_FLIGHT:
            batches = _next_request(waiting, limits.request_bytes)
            on_their_way.append(connection.send(_request(batches, limits, transactional_id)))
        for tp, offset in _accepted(connection.receive(on_their_way.popleft())):
            offsets.setdefault(tp, offset)


def _next_request(waiting: deque[tuple[TopicPartition, bytes]], most_bytes: int) -> dict[TopicPartition, bytes]:
    """The next batches that go together: one a partition, as Kafka wants it."""
    chosen: dict[TopicPartition, bytes] = {}
    size = 0
    while waiting and waiting[0][0] not in chosen and (not chosen or size + len(waiting[0][1]) <= most_bytes):
        tp, data = waiting.popleft()
        chosen[tp] = data
        size += len(data)
    return chosen


def _request(batches: Mapping[TopicPartition, bytes], limits: ProduceLimits, transactional_id: str | None) -> Any:
    from kafka.protocol.producer import ProduceRequest

    topic = ProduceRequest.TopicProduceData
    topics: dict[str, list[Any]] = {}
    for tp, data in batches.items():
        topics.setdefault(tp.topic, []).append(topic.PartitionProduceData(index=tp.partition, records=data))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL_REPLICAS,
        timeout_ms=limits.timeout_ms,
        topic_data=[topic(name=name, partition_data=each) for name, each in topics.items()],
        min_version=3,
        max_version=11,  # from 12 on a transaction's partitions need not be told before, from 13 topics go by their ids
    )


def _accepted(answer: Any) -> Iterator[tuple[TopicPartition, int]]:
    from penstock.log.base import TopicPartition

    for topic in answer.responses:
        for each in topic.partition_responses:
            check(each.error_code, f"writing to {topic.name}-{each.index}")
            yield TopicPartition(topic.name, each.index), each.base_offset
