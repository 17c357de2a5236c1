"""Questions to a cluster that change nothing in it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.log.kafka.failures import error_of
from penstock.log.kafka.wire.connection import check

if TYPE_CHECKING:
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = [
    "COMPACTED",
    "TopicFacts",
    "absent_topic_rights",
    "advertised_brokers",
    "broker_settings",
    "client_quotas",
    "clock_difference_ms",
    "creation_error",
    "features",
    "group_operations",
    "operations_of",
    "shown",
    "topic_facts",
    "topic_settings",
    "transactional_id_error",
]

COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}
# The numbers of operations, by their names in ACLs.
_OPERATIONS = {
    "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7, "DESCRIBE": 8, "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11, "IDEMPOTENT_WRITE": 12,
}  # fmt: skip
_NOT_SAID = 31  # this alone: the broker does not say
_TOPIC, _BROKER = 2, 4  # kinds of resources, as DescribeConfigs numbers them
_ANY_ENTITY = 2  # of DescribeClientQuotas: whatever the name
_NO_PRODUCER, _NO_EPOCH = 1 << 62, 0
_ANSWER_MS = 10_000


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic.

    Attributes:
        error: The code of the error of one that cannot be seen; 0: it can.
        partitions: The number of its partitions.
        replicas: The number of copies of the partition with the fewest.
        in_sync: The number of copies in sync of the partition with the fewest.
        leaderless: The number of partitions without a leader.
        operations: What this user may do with it; None: the broker does not say.
    """

    error: int
    partitions: int = 0
    replicas: int = 0
    in_sync: int = 0
    leaderless: int = 0
    operations: frozenset[str] | None = None


def operations_of(numbers: Collection[int] | None) -> frozenset[str] | None:
    """Return the names of the operations of an answer; None if the broker does not say.

    A broker answers with what a user may DESCRIBE at least, so that nothing at all is no answer.

    >>> sorted(operations_of({3, 4, 8}))
    ['DESCRIBE', 'READ', 'WRITE']
    >>> operations_of(set()), operations_of({31})
    (None, None)
    """
    if not numbers or _NOT_SAID in numbers:
        return None
    return frozenset(name for name, number in _OPERATIONS.items() if number in numbers)


def advertised_brokers(connection: BrokerConnection) -> dict[int, tuple[str, int]]:
    """Return the advertised host and port of each broker, by its number.

    Raises:
        KafkaException: As the connection's.
    """
    from kafka.protocol.admin import DescribeClusterRequest
    from kafka.protocol.metadata import MetadataRequest

    try:
        answer = connection.ask(DescribeClusterRequest(include_cluster_authorized_operations=False, max_version=0))
        check(answer.error_code, "describing the cluster")
        return {each.broker_id: (each.host, each.port) for each in answer.brokers}
    except KafkaException as error:
        if error_of(error).code() != KafkaError.UNSUPPORTED_VERSION:
            raise
    answer = connection.ask(MetadataRequest(topics=[], min_version=2, max_version=7))
    return {each.node_id: (each.host, each.port) for each in answer.brokers}


def features(connection: BrokerConnection) -> dict[str, int]:
    """Return the features that the cluster has agreed on, with their levels; none on a broker before Kafka 2.7."""
    from kafka.protocol.metadata import ApiVersionsRequest

    request = ApiVersionsRequest(
        client_software_name="penstock", client_software_version="1", min_version=3, max_version=3
    )
    try:
        answer = connection.ask(request)
    except KafkaException as error:
        if error_of(error).code() == KafkaError.UNSUPPORTED_VERSION:
            return {}
        raise
    check(answer.error_code, "asking for the features of the cluster")
    return {each.name: each.max_version_level for each in answer.finalized_features or ()}


def broker_settings(connection: BrokerConnection, node: int) -> dict[str, str]:
    """Return the settings of a broker.

    Raises:
        KafkaException: CLUSTER_AUTHORIZATION_FAILED without DESCRIBE_CONFIGS on the cluster, and others.
    """
    return _settings(connection, _BROKER, [str(node)])[str(node)]


def topic_settings(connection: BrokerConnection, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the settings of those topics that this user may see the settings of."""
    return _settings(connection, _TOPIC, sorted(topics), or_none=True) if topics else {}


def _settings(
    connection: BrokerConnection, kind: int, names: Iterable[str], *, or_none: bool = False
) -> dict[str, dict[str, str]]:
    from kafka.protocol.admin import DescribeConfigsRequest as Request

    resources = [
        Request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for name in names
    ]
    answer = connection.ask(Request(resources=resources, include_synonyms=False, min_version=1, max_version=4))
    settings = {}
    for result in answer.results:
        if not (or_none and result.error_code):
            check(result.error_code, f"asking for the settings of {result.resource_name}")
            settings[result.resource_name] = shown(result.configs)
    return settings


def shown(settings: Iterable[Any]) -> dict[str, str]:
    """Return the settings of an answer without those whose values the broker hides, or does not have."""
    return {each.name: each.value for each in settings if each.value}


def topic_facts(connection: BrokerConnection, topics: Collection[str] | None) -> dict[str, TopicFacts]:
    """Describe these topics, or all that this user sees; no topic is created."""
    from kafka.protocol.metadata import MetadataRequest

    if topics is not None and not topics:
        return {}
    asked = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
    request = MetadataRequest(
        topics=asked,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=topics is not None,
        min_version=4,
        max_version=9,
    )
    return {each.name: _facts_of(each) for each in connection.ask(request).topics}


def _facts_of(topic: Any) -> TopicFacts:
    if topic.error_code or not topic.partitions:
        return TopicFacts(topic.error_code)
    return TopicFacts(
        0,
        len(topic.partitions),
        min(len(each.replica_nodes) for each in topic.partitions),
        min(len(each.isr_nodes) for each in topic.partitions),
        sum(each.leader_id < 0 for each in topic.partitions),
        operations_of(getattr(topic, "authorized_operations", None)),
    )


def group_operations(cluster: Cluster, group: str) -> frozenset[str] | None:
    """Return what this user may do with a group, which need not exist; None: the broker does not say.

    Raises:
        KafkaException: There is no coordinator yet, and others.
    """
    from kafka.protocol.admin import DescribeGroupsRequest

    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True, min_version=0, max_version=5)
    try:
        with cluster.coordinating(group, "group") as coordinator:
            [answer] = coordinator.ask(request).groups
            check(answer.error_code, f"describing group {group!r}")
    except KafkaException as error:
        if error_of(error).code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return frozenset()
        raise
    return operations_of(getattr(answer, "authorized_operations", None))


def transactional_id_error(cluster: Cluster, transactional_id: str) -> int:
    """Return the code of the error that keeps this user from writing under an id that no producer has; 0: none.

    It asks for the end of a transaction that does not exist: brokers look at the rights first.

    Raises:
        KafkaException: There is no coordinator, or the brokers know no transactions.
    """
    from kafka.protocol.producer import EndTxnRequest

    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=_NO_PRODUCER, producer_epoch=_NO_EPOCH, committed=False,
        max_version=3,
    )  # fmt: skip
    try:
        with cluster.coordinating(transactional_id, "transactional.id") as coordinator:
            code = int(coordinator.ask(request).error_code)
    except KafkaException as error:
        if error_of(error).code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return int(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        raise
    return code if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED else 0


def creation_error(
    connection: BrokerConnection, topic: str, partitions: int, replication: int, settings: Mapping[str, str]
) -> tuple[int, str]:
    """Return the code and the text of the error of a topic's creation, which is validated and not done; 0: none."""
    from kafka.protocol.admin import CreateTopicsRequest as Request

    new = Request.CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[],
        configs=[Request.CreatableTopic.CreatableTopicConfig(name=name, value=text) for name, text in settings.items()],
    )
    request = Request(topics=[new], timeout_ms=_ANSWER_MS, validate_only=True, min_version=2, max_version=6)
    [answer] = connection.ask(request).topics
    return int(answer.error_code), str(answer.error_message or "")


def absent_topic_rights(cluster: Cluster, transactional_id: str, topic: str) -> dict[str, bool]:
    """Return whether this user may READ, WRITE and DELETE a topic that does not exist.

    The requests are for a topic that is not there: brokers look at the rights first. WRITE is left out if the user may
    not write under the transactional id, DELETE if the brokers delete no records.
    """
    from kafka.protocol.admin import DeleteRecordsRequest
    from kafka.protocol.consumer import FetchRequest
    from kafka.protocol.producer import AddPartitionsToTxnRequest

    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    rights = {}
    fetch = FetchRequest.FetchTopic(
        topic=topic,
        partitions=[
            FetchRequest.FetchTopic.FetchPartition(
                partition=0, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=-1,
                partition_max_bytes=1,
            )
        ],
    )  # fmt: skip
    answer = cluster.any_broker().ask(
        FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=0, session_id=0, session_epoch=-1, topics=[fetch],
            forgotten_topics_data=[], rack_id="", min_version=4, max_version=11,
        )
    )  # fmt: skip
    rights["READ"] = answer.responses[0].partitions[0].error_code != refused
    deletion = DeleteRecordsRequest.DeleteRecordsTopic
    partition = deletion.DeleteRecordsPartition(partition_index=0, offset=0)
    request = DeleteRecordsRequest(
        topics=[deletion(name=topic, partitions=[partition])], timeout_ms=_ANSWER_MS, max_version=2
    )
    try:
        answer = cluster.any_broker().ask(request)
        rights["DELETE"] = answer.topics[0].partitions[0].error_code != refused
    except KafkaException as error:
        if error_of(error).code() != KafkaError.UNSUPPORTED_VERSION:
            raise
    with cluster.coordinating(transactional_id, "transactional.id") as coordinator:
        answer = coordinator.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id, v3_and_below_producer_id=_NO_PRODUCER,
                v3_and_below_producer_epoch=_NO_EPOCH, max_version=3,
                v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
        )  # fmt: skip
    code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    if code != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        rights["WRITE"] = code != refused
    return rights


def client_quotas(connection: BrokerConnection) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Return all quotas of users and clients: the entity by its kinds (None: the default of all), and the limits.

    Raises:
        KafkaException: CLUSTER_AUTHORIZATION_FAILED without DESCRIBE_CONFIGS on the cluster, and others.
    """
    from kafka.protocol.admin import DescribeClientQuotasRequest as Request

    entries: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
    for kind in ("user", "client-id"):  # a filter is for entities of its kind alone; others may be in there as well
        component = Request.ComponentData(entity_type=kind, match_type=_ANY_ENTITY, match=None)
        answer = connection.ask(Request(components=[component], strict=False, max_version=1))
        check(answer.error_code, answer.error_message or "asking for quotas")
        for entry in answer.entries or ():
            entity = tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity))
            entries[entity] = {each.key: each.value for each in entry.values}
    return [(dict(entity), limits) for entity, limits in entries.items()]


def clock_difference_ms(connection: BrokerConnection) -> tuple[float, float] | None:
    """Return how far the clock of the active controller is ahead of ours, and the error of that, in milliseconds.

    A controller names the time at which it has last heard from each node; for itself that is now. None: it is no KRaft
    cluster, or one before Kafka 3.3.

    Raises:
        KafkaException: CLUSTER_AUTHORIZATION_FAILED without DESCRIBE on the cluster, and others.
    """
    from kafka.protocol.admin import DescribeQuorumRequest as Request

    partition = Request.TopicData.PartitionData(partition_index=0)
    topic = Request.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    before = time.time() * 1000
    try:
        answer = connection.ask(Request(topics=[topic], min_version=1, max_version=2))
    except KafkaException as error:
        if error_of(error).code() == KafkaError.UNSUPPORTED_VERSION:
            return None
        raise
    after = time.time() * 1000
    check(answer.error_code, "asking for the controllers")
    told = answer.topics[0].partitions[0]
    check(told.error_code, "asking for the controllers")
    times = [each.last_fetch_timestamp for each in told.current_voters if each.replica_id == told.leader_id]
    if not times or times[0] < 0:
        return None
    return times[0] - (before + after) / 2, (after - before) / 2
