"""The order in which leaders get the records of a transaction: brokers that note what they are sent, and answer it."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from kafka.protocol.producer import ProduceResponse

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.cluster import Cluster
from penstock.log.kafka.wire.connection import BrokerConnection
from penstock.log.kafka.wire.produce import NotWrittenError, ProduceLimits, ProduceRequests
from penstock.log.kafka.wire.record_batches import ProducerState

TOPIC = ProduceResponse.TopicProduceResponse
STATE = ProducerState(7, 0, 0, transactional=True)


class Leader:
    """The connection to a broker: events go to a list that all share."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self.refuses: set[int] = set()  # partitions
        self.is_closed = False
        self._events = events
        self._sent: list[Any] = []

    def send(self, request: Any) -> int:
        self._events.append(f"to {self.name}")
        self._sent.append(request)
        return len(self._sent) - 1

    def receive(self, number: int) -> Any:
        self._events.append(f"from {self.name}")
        topics = [
            TOPIC(name=topic.name, partition_responses=[self._answer(each.index) for each in topic.partition_data])
            for topic in self._sent[number].topic_data
        ]
        return ProduceResponse(topics, 0)

    def close(self) -> None:
        self.is_closed = True

    def _answer(self, partition: int) -> Any:
        code = KafkaError.CONCURRENT_TRANSACTIONS if partition in self.refuses else 0
        return TOPIC.PartitionProduceResponse(index=partition, error_code=code, base_offset=100)


class Leaders:
    """A cluster in which partition n is led by broker n modulo three."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.brokers = [Leader(name, self.events) for name in "abc"]

    def leader(self, place: TopicPartition) -> Leader:
        return self.brokers[place.partition % 3]


def batches(partitions: int, limits: ProduceLimits | None = None) -> ProduceRequests:
    records = pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array([1, 2], pa.int64()),
            "key": pa.array([b"k", b"l"], pa.large_binary()),
            "value": pa.array([b"v" * 300, b"w" * 300], pa.large_binary()),
        }
    )
    parts = [(TopicPartition("out", each), records) for each in range(partitions)]
    return ProduceRequests(parts, limits or ProduceLimits(), STATE, {})


def started(made: ProduceRequests, cluster: Leaders, next_to: Leader | None) -> None:
    made.start_in_turn(cast("Cluster", cluster), "app-thread-0", cast("BrokerConnection | None", next_to))


def test_a_leader_gets_records_when_the_one_before_has_answered() -> None:
    cluster = Leaders()
    made = batches(3)
    started(made, cluster, None)
    assert cluster.events == ["to a", "from a", "to b", "from b", "to c"]
    made.finish()
    assert cluster.events[5:] == ["from c"]
    assert made.following == {TopicPartition("out", each): 102 for each in range(3)}


def test_the_leader_that_gets_the_offsets_comes_last_and_is_not_waited_for() -> None:
    cluster = Leaders()
    started(batches(3), cluster, cluster.brokers[0])
    assert cluster.events == ["to b", "from b", "to c", "from c", "to a"]


def test_offsets_for_another_broker_wait_for_all_leaders() -> None:
    cluster = Leaders()
    started(batches(2), cluster, cluster.brokers[2])
    assert cluster.events == ["to a", "from a", "to b", "from b"]


def test_one_leader_is_waited_for_only_if_the_offsets_go_elsewhere() -> None:
    cluster = Leaders()
    started(batches(1), cluster, cluster.brokers[0])
    assert cluster.events == ["to a"]
    started(batches(1), cluster, cluster.brokers[1])
    assert cluster.events == ["to a", "to a", "from a"]


def test_further_requests_go_to_all_leaders_at_once() -> None:
    cluster = Leaders()
    made = batches(4, ProduceLimits(batch_bytes=400, request_bytes=1))
    started(made, cluster, None)
    assert cluster.events[:4] == ["to a", "from a", "to b", "from b"]
    assert cluster.events[4:] == ["to c", *["to a"] * 3, "to b", "to c"]
    made.finish()
    assert made.following == {TopicPartition("out", each): 101 for each in range(4)}


def test_what_was_accepted_before_a_refusal_is_not_sent_again() -> None:
    cluster = Leaders()
    cluster.brokers[1].refuses = {1}
    made = batches(3)
    with pytest.raises(NotWrittenError, match="writing to out-1"):
        started(made, cluster, None)
    assert not cluster.brokers[0].is_closed, "nothing is to come from it"
    cluster.brokers[1].refuses, seen = set(), len(cluster.events)
    started(made, cluster, None)
    made.finish()
    assert cluster.events[seen:] == ["to b", "from b", "to c", "from c"]
    assert set(made.following) == {TopicPartition("out", each) for each in range(3)}
