"""A Kafka cluster as one process sees it: connections to its brokers, leaders of partitions, coordinators."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from confluent_kafka import KafkaError, KafkaException

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.connection import BrokerConnection
from penstock.log.kafka.wire.errors import check, failed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Cluster"]

CoordinatorKind = Literal["group", "transactional.id"]
_COORDINATORS: dict[CoordinatorKind, int] = {"group": 0, "transactional.id": 1}


class Cluster:
    """Connections are made when first needed; one thread at a time may use a connection, so each thread has its own.

    Args:
        settings: As `ClientSettings.kafka_python` gives them.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._lock = threading.Lock()
        self._held: dict[int, dict[int, BrokerConnection]] = {}  # by thread, by node

    def leader(self, tp: TopicPartition) -> BrokerConnection:
        """A connection to the broker that leads a partition.

        Raises:
            KafkaException: UNKNOWN_TOPIC_OR_PART, LEADER_NOT_AVAILABLE, or a connection's.
        """
        if tp not in self._leaders:
            self._learn([tp.topic])
        node = self._leaders.get(tp)
        if node is None:
            raise failed(KafkaError.LEADER_NOT_AVAILABLE, f"{tp.topic}-{tp.partition} has no leader now")
        return self._connection(node)

    @contextmanager
    def coordinating(self, key: str, kind: CoordinatorKind) -> Iterator[BrokerConnection]:
        """A connection to the broker that keeps the state of a group or a transactional id.

        An error inside makes it be looked for again the next time.
        """
        try:
            yield self._coordinator(key, kind)
        except KafkaException:
            with self._lock:
                self._coordinators.pop((kind, key), None)
            raise

    def _coordinator(self, key: str, kind: CoordinatorKind) -> BrokerConnection:
        from kafka.protocol.metadata import FindCoordinatorRequest

        known = self._coordinators.get((kind, key))
        if known is not None:
            return self._connection(known)
        request = FindCoordinatorRequest(key=key, key_type=_COORDINATORS[kind], min_version=1, max_version=3)
        answer = self.any_broker().ask(request)
        check(answer.error_code, f"looking for the coordinator of {kind} {key!r}")
        with self._lock:
            self._brokers[answer.node_id] = (answer.host, answer.port)
            self._coordinators[kind, key] = answer.node_id
        return self._connection(answer.node_id)

    def forget(self) -> None:
        """After an error: leaders may have moved, connections may be broken."""
        with self._lock:
            self._leaders.clear()
            self._coordinators.clear()
        for connection in self._connections().values():
            connection.close()
        self._connections().clear()

    def any_broker(self) -> BrokerConnection:
        """A connection to some broker, a bootstrap server if no other is known."""
        for connection in self._connections().values():
            if connection.usable:
                return connection
        servers = list(self._settings["bootstrap_servers"])
        random.shuffle(servers)
        failed: Exception | None = None
        for server in servers:
            host, _, port = server.rpartition(":")
            try:
                self._connections()[-1] = BrokerConnection(host.strip("[]"), int(port), self._settings)
            except KafkaException as error:
                failed = error
            else:
                return self._connections()[-1]
        assert failed is not None, "bootstrap.servers is checked before"  # noqa: S101
        raise failed

    def every_broker(self) -> list[BrokerConnection]:
        """Connections to all brokers that the cluster has now."""
        return [self._connection(node) for node in self._learn([])]

    def close(self) -> None:
        """Closes all connections, those of other threads too; later calls open new ones."""
        with self._lock:
            held, self._held = self._held, {}
        for connections in held.values():
            for connection in connections.values():
                connection.close()

    def _connections(self) -> dict[int, BrokerConnection]:
        with self._lock:
            return self._held.setdefault(threading.get_ident(), {})

    def _connection(self, node: int) -> BrokerConnection:
        held = self._connections().get(node)
        if held is not None and held.usable:
            return held
        host, port = self._brokers[node]
        if held is not None:
            held.close()
        made = self._connections()[node] = BrokerConnection(host, port, self._settings)
        return made

    def _learn(self, topics: list[str]) -> list[int]:
        """Asks for the leaders of topics; gives the brokers."""
        from kafka.protocol.metadata import MetadataRequest

        wanted = [MetadataRequest.MetadataRequestTopic(name=each) for each in topics]
        answer = self.any_broker().ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=4, max_version=8)
        )
        with self._lock:
            self._brokers |= {each.node_id: (each.host, each.port) for each in answer.brokers}
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.leader_id >= 0:
                        self._leaders[TopicPartition(topic.name, each.partition_index)] = each.leader_id
        for topic in answer.topics:
            check(topic.error_code, f"looking for topic {topic.name!r}")
        return [each.node_id for each in answer.brokers]
