"""One of three brokers is lost: a log goes on with the others. How soon it does is measured by bench/failover.py."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin import AlterPartitionReassignmentsRequest, ElectLeadersRequest

from eventually import eventually
from penstock import Materialized, StreamsBuilder
from penstock.engines.kafka_streams import State
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.wire.cluster import Cluster
from penstock.log.open import open_log
from penstock.tools.broker.process import BrokerCluster

from .conftest import Place

PARTITIONS = 3
PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_a_log_leaves_a_lost_leader(cluster: BrokerCluster, how: signal.Signals) -> None:
    """It knows only the lost one by its settings, and has connections to it that nobody closes when it is stalled."""
    topic = f"lost-{how.name}"
    with open_log(cluster.bootstrap_servers) as log:
        log.create_topic(topic, PARTITIONS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    partitions = eventually(lambda: admin.list_topics(topic, timeout=10).topics[topic].partitions)
    broker = cluster.broker(partitions[0].leader)
    others = ",".join(each.settings.bootstrap_servers for each in cluster.brokers if each is not broker)
    witness = AdminClient({"bootstrap.servers": others, "log_level": 0})

    def is_over() -> bool:
        try:
            topics = witness.list_topics(timeout=10).topics.values()
        except KafkaException:
            return False
        return all(one.leader not in (-1, broker.settings.node) for each in topics for one in each.partitions.values())

    with open_log(broker.settings.bootstrap_servers, {"task.timeout.ms": 180_000}) as log:
        write(log, topic, b"before")
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        known = dict(log.settled_ends(places))
        assert log.wait_for_data(known, 0.1) == known
        pid = broker.status().pid
        assert pid is not None
        os.kill(pid, how)
        try:
            write(log, topic, b"after")
            eventually(is_over, PATIENCE_S)
            assert log.wait_for_data(known, PATIENCE_S) != known
            log.settled_ends(places)
            for number in range(PARTITIONS):
                assert log.read(topic, number, 0).records.column("value").to_pylist() == [b"before", b"after"]
            found = log.offsets_for_times(dict.fromkeys(places, 1))
            assert {place: at.offset for place, at in found.items() if at is not None} == dict.fromkeys(places, 0)
        finally:
            if how is signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
    if how is signal.SIGSTOP:
        eventually(lambda: all_in_sync(admin), PATIENCE_S)


def write(log: TopicLog, topic: str, value: bytes) -> None:
    record = pa.RecordBatch.from_pydict({"timestamp": [1], "value": pa.array([value], pa.large_binary())})
    with log.transaction(f"{topic}-writer") as transaction:
        for number in range(PARTITIONS):
            transaction.append(topic, number, record)


def all_in_sync(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=10).topics.values()
    return all(len(one.isrs) == len(one.replicas) for each in topics for one in each.partitions.values())


def test_an_application_stops_soon_after_leaders_have_moved(cluster: BrokerCluster, tmp_path: Path, spark: Any) -> None:
    """Records of its repartition topic are deleted at the present leaders, not at those of the deletion before."""
    place = Place(tmp_path, spark, cluster.bootstrap_servers)
    source = place.topic("words", PARTITIONS)
    builder = StreamsBuilder()
    builder.stream(source).group_by(lambda _, value: value).count(Materialized("words"))
    settings = {"commit.interval.ms": 100, "repartition.purge.interval.ms": 100, "task.timeout.ms": 60_000}
    repartition = f"{place.prefix}app-words-repartition"
    with place.app(builder.build(), **settings) as app, closing(kafka_of(place).clients.own_cluster()) as brokers:
        eventually(lambda: app.state is State.RUNNING, facts=lambda: app.error)
        for number in range(3):
            before = sum(place.log.beginning_offsets([repartition]).values())
            place.write(source, [(None, f"{number}-{each}", each) for each in range(30)])
            eventually(lambda before=before: sum(place.log.beginning_offsets([repartition]).values()) > before)
            for partition in range(PARTITIONS):
                move_leader(brokers, TopicPartition(repartition, partition))
        place.write(source, [(None, f"last-{each}", each) for each in range(30)])
        eventually(lambda: app.figures().records_in >= 4 * 30, facts=app.figures)
        ended = threading.Event()
        threading.Thread(target=lambda: (app.close(), ended.set()), daemon=True).start()
        assert ended.wait(30.0)  # half of task.timeout.ms, which it would need with the leaders of before
    place.log.close()


def kafka_of(place: Place) -> KafkaLog:
    assert isinstance(place.log, KafkaLog)
    return place.log


def move_leader(brokers: Cluster, place: TopicPartition) -> None:
    """Make another replica the leader; connections stay as they are."""
    brokers.forget_leaders([place])
    before = brokers.leader(place).address
    reassign = AlterPartitionReassignmentsRequest.ReassignableTopic
    node = next(node for node, address in brokers._brokers.items() if "{}:{}".format(*address) != before)
    replicas = [node, *(each for each in brokers._brokers if each != node)]
    partition = reassign.ReassignablePartition(partition_index=place.partition, replicas=replicas)
    topics = [reassign(name=place.topic, partitions=[partition])]
    brokers.any_broker().ask(AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=topics, max_version=0))
    election = ElectLeadersRequest.TopicPartitions(topic=place.topic, partitions=[place.partition])

    def is_moved() -> bool:
        brokers.any_broker().ask(
            ElectLeadersRequest(election_type=0, topic_partitions=[election], timeout_ms=10_000, min_version=1)
        )
        brokers.forget_leaders([place])
        return brokers.leader(place).address != before

    eventually(is_moved, PATIENCE_S, passing=(KafkaException,))
