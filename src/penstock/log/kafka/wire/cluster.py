"""A Kafka cluster: connections to its brokers, leaders of partitions, coordinators, deletion of records."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from confluent_kafka import KafkaError, KafkaException

from penstock.base.clock import unix_ms
from penstock.base.randomness import RANDOM
from penstock.log.base import TopicPartition
from penstock.log.client_counts import count
from penstock.log.kafka.wire.batch_reader import MOST_UNPACKED_BYTES
from penstock.log.kafka.wire.connection import NO_CONNECTION, BrokerConnection, check, failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Cluster", "delete_records", "feature_level"]

_DELETION_MS = 10_000


def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Remove the records before these offsets; return the first offset of each partition.

    A partition that fails, or a broker, keeps no other from being done.

    Raises:
        KafkaException: Like librdkafka's admin client, of one of those that have failed. There are no retries here.
    """
    low_watermarks: dict[TopicPartition, int] = {}
    by_leader, errors = cluster.reachable(before)
    sent = []
    try:
        for connection, places in by_leader.items():
            try:
                request = _request({tp: before[tp] for tp in places})
                sent.append((connection, connection.send(request), places))
            except KafkaException as error:
                errors |= dict.fromkeys(places, error)
        for connection, number, places in sent:
            try:
                answer = connection.receive(number)
            except KafkaException as error:
                errors |= dict.fromkeys(places, error)
                continue
            for topic in answer.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    try:
                        check(each.error_code, f"deleting records of {tp.topic}-{tp.partition}")
                    except KafkaException as error:
                        errors[tp] = error
                    else:
                        low_watermarks[tp] = each.low_watermark
    except BaseException:
        cluster.forget()  # answers are still to come
        raise
    for tp in before.keys() - low_watermarks.keys() - errors.keys():
        errors[tp] = failed(NO_CONNECTION, f"the answer does not name {tp.topic}-{tp.partition}")
    if errors:
        cluster.forget()  # leaders have moved, or connections are broken
        raise errors[min(errors)]
    return low_watermarks


def _request(before: Mapping[TopicPartition, int]) -> Any:
    from kafka.protocol.admin import DeleteRecordsRequest

    topic = DeleteRecordsRequest.DeleteRecordsTopic
    topics: dict[str, list[Any]] = {}
    for tp, offset in before.items():
        partition = topic.DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        topics.setdefault(tp.topic, []).append(partition)
    return DeleteRecordsRequest(
        topics=[topic(name=name, partitions=each) for name, each in topics.items()],
        timeout_ms=_DELETION_MS,
        min_version=1,
        max_version=2,
    )


_Address = tuple[str, int]
CoordinatorKind = Literal["group", "transactional.id"]
_COORDINATORS: dict[CoordinatorKind, int] = {"group": 0, "transactional.id": 1}
_HURRY_MS = 2_000


class Cluster:
    """The connections to a cluster, made on first use; each thread has its own.

    Args:
        settings: The settings of `ClientSettings.kafka_python`.
        most_unpacked_bytes: The limit of the unpacked size of compressed record batches, alone and together.
    """

    def __init__(self, settings: Mapping[str, Any], most_unpacked_bytes: int = MOST_UNPACKED_BYTES) -> None:
        self.most_unpacked_bytes = most_unpacked_bytes
        self._settings = settings
        self._brokers: dict[int, _Address] = {}
        self._unreachable: dict[_Address, float] = {}  # the time of the last failed attempt
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._lock = threading.Lock()
        self._held: dict[int, dict[int, BrokerConnection]] = {}  # by thread, by node

    def leader(self, tp: TopicPartition) -> BrokerConnection:
        """Return a connection to the leader of a partition.

        Raises:
            KafkaException: UNKNOWN_TOPIC_OR_PART, LEADER_NOT_AVAILABLE, or an error of a connection.
        """
        return next(iter(self.by_leader([tp])))

    def by_leader(self, places: Iterable[TopicPartition]) -> dict[BrokerConnection, list[TopicPartition]]:
        """Return connections to the leaders of many partitions, each with its partitions; see `leader`."""
        places = list(places)
        leaders = self._leaders
        unknown = {tp.topic for tp in places if tp not in leaders}
        if unknown:
            leaders = leaders | self._learn(sorted(unknown))[1]
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in places:
            node = leaders.get(tp)
            if node is None:
                raise failed(KafkaError.LEADER_NOT_AVAILABLE, f"{tp.topic}-{tp.partition} has no leader now")
            by_node.setdefault(node, []).append(tp)
        return {self._connection(node): led for node, led in by_node.items()}

    def reachable(
        self, places: Iterable[TopicPartition]
    ) -> tuple[dict[BrokerConnection, list[TopicPartition]], dict[TopicPartition, KafkaException]]:
        """Return connections to leaders with their partitions, and the errors of those partitions without one."""
        places = list(places)
        errors: dict[TopicPartition, KafkaException] = {}
        by_node: dict[int, list[TopicPartition]] = {}
        leaders = self._leaders
        for topic in sorted({tp.topic for tp in places if tp not in leaders}):
            try:
                leaders = leaders | self._learn([topic])[1]
            except KafkaException as error:
                errors |= {tp: error for tp in places if tp.topic == topic}
        for tp in places:
            node = leaders.get(tp)
            if node is not None:
                by_node.setdefault(node, []).append(tp)
            elif tp not in errors:
                text = f"{tp.topic}-{tp.partition} has no leader now"
                errors[tp] = failed(KafkaError.LEADER_NOT_AVAILABLE, text)
        by_connection: dict[BrokerConnection, list[TopicPartition]] = {}
        for node, led in by_node.items():
            try:
                by_connection[self._connection(node)] = led
            except KafkaException as error:
                errors |= dict.fromkeys(led, error)
        if errors:
            self.forget_leaders(errors)
        return by_connection, errors

    def forget_leaders(self, places: Iterable[TopicPartition]) -> None:
        """Look up the leaders of these partitions again, before the next use."""
        gone = set(places)
        with self._lock:
            self._leaders = {tp: node for tp, node in self._leaders.items() if tp not in gone}

    @contextmanager
    def coordinating(self, key: str, kind: CoordinatorKind) -> Iterator[BrokerConnection]:
        """Lend a connection to the coordinator of a group or a transactional id.

        After an error in the block the coordinator is looked up again.
        """
        try:
            yield self._coordinator(key, kind)
        except KafkaException:
            with self._lock:
                self._coordinators.pop((kind, key), None)
            raise

    def _coordinator(self, key: str, kind: CoordinatorKind) -> BrokerConnection:
        from kafka.protocol.metadata import FindCoordinatorRequest

        node = self._coordinators.get((kind, key))
        if node is not None:
            return self._connection(node)
        request = FindCoordinatorRequest(key=key, key_type=_COORDINATORS[kind], min_version=1, max_version=3)
        answer = self.any_broker().ask(request)
        check(answer.error_code, f"looking for the coordinator of {kind} {key!r}")
        with self._lock:
            self._brokers[answer.node_id] = (answer.host, answer.port)
            self._coordinators[kind, key] = answer.node_id
        return self._connection(answer.node_id)

    def forget(self) -> None:
        """Forget leaders and close connections, after an error: leaders may have moved."""
        with self._lock:
            self._leaders = {}
            self._coordinators = {}
        for connection in self._connections().values():
            connection.close()
        self._connections().clear()

    def any_broker(self) -> BrokerConnection:
        """Return an idle connection to any broker; recently unreachable ones only if no other answers.

        A broker answers requests in turn: on a connection with a fetch in flight the caller would wait for its end.
        """
        for connection in self._connections().values():
            if connection.is_idle:
                return connection
        addresses = self._addresses()
        assert addresses, "bootstrap.servers is checked before"  # noqa: S101
        for address in addresses:
            try:
                new_connection = self._connections()[-1] = self._connect(address)
            except KafkaException as error:
                last = error
            else:
                return new_connection
        raise last

    def _addresses(self) -> list[_Address]:
        """List the addresses of all known brokers and bootstrap servers; recently unreachable ones come last."""
        servers = (server.rpartition(":") for server in self._settings["bootstrap_servers"])
        addresses = {*self._brokers.values(), *((host.strip("[]"), int(port)) for host, _, port in servers)}
        return sorted(addresses, key=lambda each: (self._unreachable.get(each, 0.0), RANDOM.random()))

    def _connect(self, address: _Address) -> BrokerConnection:
        try:
            connection = BrokerConnection(*address, self._settings, partial(self._is_left, address))
        except KafkaException:
            self._unreachable[address] = time.monotonic()
            raise
        self._unreachable.pop(address, None)
        return connection

    def _is_left(self, address: _Address) -> bool:
        """Return whether the broker of this address has left the cluster; False also if no other broker answers."""
        if address not in self._brokers.values():
            return False
        hurried = {**self._settings, "request_timeout_ms": _HURRY_MS}
        for other in self._addresses():
            if other == address:
                continue
            try:
                with closing(BrokerConnection(*other, hurried)) as connection:
                    answer = connection.ask(_metadata_request([]))
            except KafkaException:
                self._unreachable[other] = time.monotonic()
            else:
                return address not in {(each.host, each.port) for each in answer.brokers}
        return False

    def every_broker(self) -> list[BrokerConnection]:
        """Return connections to all brokers of the cluster."""
        return [self._connection(node) for node in self._learn([])[0]]

    def reachable_brokers(self) -> list[BrokerConnection]:
        """Return connections to those brokers of the cluster that can be reached."""
        connections = []
        for node in self._learn([])[0]:
            with suppress(KafkaException):
                connections.append(self._connection(node))
        return connections

    def partition_counts(self, topics: list[str] | None = None) -> dict[str, int]:
        """Return the number of partitions of each of these topics, or of all, that exists and this user may see."""
        answer = self.any_broker().ask(_metadata_request(topics))
        return {topic.name: len(topic.partitions) for topic in answer.topics if not topic.error_code}

    def produced_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic to write to, which brokers may create now, as for any producer.

        Raises:
            KafkaException: UNKNOWN_TOPIC_OR_PART, LEADER_NOT_AVAILABLE while it is created, or other errors.
        """
        [answer] = self.any_broker().ask(_metadata_request([topic], creates=True)).topics
        check(answer.error_code, f"looking for topic {topic!r}")
        return len(answer.partitions)

    def identities(self, topics: Sequence[str]) -> tuple[str, dict[str, str]]:
        """Return the cluster's id, and those of topics that exist (none before Kafka 2.8)."""
        from kafka.protocol.metadata import MetadataRequest

        topic_requests = [MetadataRequest.MetadataRequestTopic(name=each) for each in topics]
        answer = self.any_broker().ask(
            MetadataRequest(topics=topic_requests, allow_auto_topic_creation=False, min_version=4, max_version=12)
        )
        for topic in answer.topics:
            if topic.error_code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                check(topic.error_code, f"looking for topic {topic.name!r}")
        ids = {each.name: getattr(each, "topic_id", None) for each in answer.topics if not each.error_code}
        return answer.cluster_id, {name: str(each) for name, each in ids.items() if each is not None and each.int}

    def close(self) -> None:
        """Close all connections, of all threads; later calls open new ones."""
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
        address = self._brokers.get(node)
        if address is None:
            raise failed(KafkaError.LEADER_NOT_AVAILABLE, f"broker {node} is not available now")
        if held is not None:
            held.close()
        connection = self._connections()[node] = self._connect(address)
        return connection

    def _learn(self, topics: list[str]) -> tuple[list[int], dict[TopicPartition, int]]:
        """Fetch the metadata of topics; return the brokers, and the leaders of those partitions that have one."""
        answer = self.any_broker().ask(_metadata_request(topics))
        leaders = {
            TopicPartition(topic.name, each.partition_index): each.leader_id
            for topic in answer.topics
            for each in topic.partitions
            if each.leader_id >= 0
        }
        count("producer", "metadata-at-ms", unix_ms())
        with self._lock:
            self._brokers |= {each.node_id: (each.host, each.port) for each in answer.brokers}
            self._leaders = {tp: node for tp, node in self._leaders.items() if tp.topic not in topics} | leaders
        for topic in answer.topics:
            check(topic.error_code, f"looking for topic {topic.name!r}")
        return [each.node_id for each in answer.brokers], leaders


def _metadata_request(topics: list[str] | None, *, creates: bool = False) -> Any:
    """Make a request for the brokers and these topics; None: all topics. Brokers may create those that are missing."""
    from kafka.protocol.metadata import MetadataRequest

    topic_requests = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=each) for each in topics]
    return MetadataRequest(topics=topic_requests, allow_auto_topic_creation=creates, min_version=4, max_version=8)


def feature_level(connection: BrokerConnection, name: str) -> int:
    """Return the finalised level of a feature; 0: the cluster does not have it, or is too old to say so.

    Raises:
        KafkaException: The broker does not answer, or refuses.
    """
    from kafka.protocol.metadata import ApiVersionsRequest

    try:
        answer = connection.ask(
            ApiVersionsRequest(
                client_software_name="penstock", client_software_version="1", min_version=3, max_version=3
            )
        )
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNSUPPORTED_VERSION:
            return 0
        raise
    if answer.error_code:
        raise failed(answer.error_code, "asking for the features of the cluster")
    levels = {each.name: each.max_version_level for each in answer.finalized_features or ()}
    return int(levels.get(name, 0))
