"""Descriptions and names of streams groups, and heartbeats of their members (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.log.kafka.wire.connection import check, failed
from penstock.log.streams_groups.description import (
    Assignment,
    DescribedMember,
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    GroupSubtopology,
    GroupTask,
    GroupTopology,
    HeartbeatAnswer,
    HeartbeatError,
    InternalTopicSpec,
    StreamsGroupDescription,
    StreamsHeartbeat,
    Tags,
    TaskSums,
)

if TYPE_CHECKING:
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = [
    "describe_streams_group",
    "heartbeat_request",
    "list_streams_groups",
    "send_heartbeat",
    "set_group_setting",
    "tasks_of",
]

_GROUP_ID_NOT_FOUND = 69  # there is none of that name, or it is of another kind
_TYPE = "streams"
_GROUP_RESOURCE, _SET = 32, 0  # as IncrementalAlterConfigs numbers them


def describe_streams_group(cluster: Cluster, group: str) -> StreamsGroupDescription | None:
    """Return a group; None if there is no streams group of that name, or the broker knows no streams groups.

    Raises:
        KafkaException: There is no connection, no answer in time, or the user may not see the group.
    """
    from penstock.log.kafka.wire.messages import StreamsGroupDescribeRequest

    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False, max_version=0)
    try:
        with cluster.coordinating(group, "group") as coordinator:
            [described] = coordinator.ask(request).groups
            if described.error_code == _GROUP_ID_NOT_FOUND:
                return None
            check(described.error_code, f"describing group {group!r}")
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNSUPPORTED_VERSION:
            return None
        raise
    return _description_of(described)


def list_streams_groups(cluster: Cluster) -> list[str]:
    """List the streams groups of all brokers that answer and know such groups.

    Raises:
        KafkaException: No broker answers.
    """
    from kafka.protocol.admin import ListGroupsRequest

    names: list[str] = []
    for broker in cluster.reachable_brokers():
        with suppress(KafkaException):
            answer = broker.ask(ListGroupsRequest(states_filter=[], types_filter=[_TYPE], min_version=5))
            names += [each.group_id for each in answer.groups if each.group_type.lower() == _TYPE]
    return names


def set_group_setting(cluster: Cluster, group: str, name: str, value: str) -> None:
    """Set a setting of a group, as ``kafka-configs --entity-type groups`` does; the group need not exist.

    Raises:
        KafkaException: Like librdkafka's admin client; INVALID_CONFIG if the setting is unknown, or its value wrong.
    """
    from kafka.protocol.admin import IncrementalAlterConfigsRequest as Request

    config = Request.AlterConfigsResource.AlterableConfig(name=name, config_operation=_SET, value=value)
    resource = Request.AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=group, configs=[config])
    [answer] = cluster.any_broker().ask(Request(resources=[resource], validate_only=False)).responses
    check(answer.error_code, answer.error_message or f"setting {name} of group {group!r}")


def tasks_of(task_ids: Iterable[Any] | None) -> frozenset[GroupTask] | None:
    """Return the tasks of a message's ``TaskIds``; None stays None."""
    if task_ids is None:
        return None
    return frozenset(GroupTask(each.subtopology_id, number) for each in task_ids for number in each.partitions)


def _description_of(group: Any) -> StreamsGroupDescription:
    topology = group.topology
    return StreamsGroupDescription(
        group=group.group_id,
        state=group.group_state,
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None
        if topology is None or topology.subtopologies is None
        else GroupTopology(tuple(map(_subtopology_of, topology.subtopologies)), topology.epoch),
        members=tuple(map(_member_of, group.members)),
    )


def _subtopology_of(message: Any) -> GroupSubtopology:
    return GroupSubtopology(
        id=message.subtopology_id,
        source_topics=tuple(message.source_topics),
        changelogs=tuple(map(_spec_of, message.state_changelog_topics)),
        repartition_sinks=tuple(message.repartition_sink_topics),
        repartition_sources=tuple(map(_spec_of, message.repartition_source_topics)),
    )


def _spec_of(topic_info: Any) -> InternalTopicSpec:
    return InternalTopicSpec(
        topic_info.name, topic_info.partitions, topic_info.replication_factor, _pairs(topic_info.topic_configs)
    )


def _pairs(key_values: Iterable[Any]) -> Tags:
    return tuple((each.key, each.value) for each in key_values)


def _member_of(message: Any) -> DescribedMember:
    endpoint = message.user_endpoint
    return DescribedMember(
        member=message.member_id,
        epoch=message.member_epoch,
        instance=message.instance_id,
        rack=message.rack_id,
        client=message.client_id,
        host=message.client_host,
        topology_epoch=message.topology_epoch,
        process=message.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=_pairs(message.client_tags),
        task_offsets=_offsets_of(message.task_offsets),
        task_end_offsets=_offsets_of(message.task_end_offsets),
        assignment=_assignment_of(message.assignment),
        target=_assignment_of(message.target_assignment),
        is_classic=message.is_classic,
    )


def _assignment_of(message: Any) -> Assignment:
    roles = (message.active_tasks, message.standby_tasks, message.warmup_tasks)
    return Assignment(*(tasks_of(each) or frozenset() for each in roles))


def _offsets_of(task_offsets: Iterable[Any]) -> Mapping[GroupTask, int]:
    return {GroupTask(each.subtopology_id, each.partition): each.offset for each in task_offsets}


# The coordinator is looked up again.
_MOVED = frozenset({HeartbeatError.COORDINATOR_NOT_AVAILABLE, HeartbeatError.NOT_COORDINATOR})


def send_heartbeat(cluster: Cluster, heartbeat: StreamsHeartbeat) -> HeartbeatAnswer:
    """Send a heartbeat to the group's coordinator, and return the answer; an error is part of it.

    Raises:
        KafkaException: There is no connection, or no answer in time. There are no retries here.
    """
    request = heartbeat_request(heartbeat)
    moved: list[HeartbeatAnswer] = []
    try:
        with cluster.coordinating(heartbeat.group, "group") as coordinator:
            answer = _answer_of(coordinator.ask(request))
            if answer.error in _MOVED:
                moved.append(answer)
                raise failed(answer.error, f"staying in group {heartbeat.group!r}")
    except KafkaException as error:
        if moved:
            return moved[0]
        if error.args[0].code() == KafkaError.UNSUPPORTED_VERSION:
            return HeartbeatAnswer(error=HeartbeatError.UNSUPPORTED_VERSION, message=error.args[0].str())
        raise
    return answer


def heartbeat_request(heartbeat: StreamsHeartbeat) -> Any:
    """Return a heartbeat as a message."""
    from penstock.log.kafka.wire.messages import StreamsGroupHeartbeatRequest as Request

    owned = heartbeat.owned
    endpoint = heartbeat.endpoint
    return Request(
        group_id=heartbeat.group,
        member_id=heartbeat.member,
        member_epoch=heartbeat.epoch,
        endpoint_information_epoch=heartbeat.endpoint_epoch,
        instance_id=heartbeat.instance,
        rack_id=heartbeat.rack,
        rebalance_timeout_ms=heartbeat.rebalance_timeout_ms,
        topology=None if heartbeat.topology is None else _topology(heartbeat.topology),
        active_tasks=None if owned is None else _task_ids(Request.TaskIds, owned.active),
        standby_tasks=None if owned is None else _task_ids(Request.TaskIds, owned.standby),
        warmup_tasks=None if owned is None else _task_ids(Request.TaskIds, owned.warmup),
        process_id=heartbeat.process,
        user_endpoint=None if endpoint is None else Request.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=None if heartbeat.tags is None else [Request.KeyValue(key=k, value=v) for k, v in heartbeat.tags],
        task_offsets=_sums(Request.TaskOffset, heartbeat.task_offsets),
        task_end_offsets=_sums(Request.TaskOffset, heartbeat.task_end_offsets),
        shutdown_application=heartbeat.shutdown,
        max_version=1,
    )


def _topology(topology: GroupTopology) -> Any:
    from penstock.log.kafka.wire.messages import StreamsGroupHeartbeatRequest as Request

    subtopology = Request.Topology.Subtopology
    return Request.Topology(
        epoch=topology.epoch,
        subtopologies=[
            subtopology(
                subtopology_id=each.id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_patterns),
                state_changelog_topics=[_topic_info(subtopology.TopicInfo, topic) for topic in each.changelogs],
                repartition_sink_topics=list(each.repartition_sinks),
                repartition_source_topics=[
                    _topic_info(subtopology.TopicInfo, topic) for topic in each.repartition_sources
                ],
                copartition_groups=[
                    subtopology.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_patterns),
                        repartition_source_topics=list(group.repartition_sources),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def _topic_info(kind: Any, topic: InternalTopicSpec) -> Any:
    return kind(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[kind.KeyValue(key=key, value=value) for key, value in topic.config],
    )


def _task_ids(kind: Any, tasks: Iterable[GroupTask]) -> list[Any]:
    partitions: dict[str, list[int]] = {}
    for task in sorted(tasks):
        partitions.setdefault(task.subtopology, []).append(task.partition)
    return [kind(subtopology_id=each, partitions=numbers) for each, numbers in partitions.items()]


def _sums(kind: Any, sums: TaskSums | None) -> list[Any] | None:
    if sums is None:
        return None
    return [
        kind(subtopology_id=task.subtopology, partition=task.partition, offset=offset)
        for task, offset in sorted(sums.items())
    ]


def _answer_of(message: Any) -> HeartbeatAnswer:
    lag = message.acceptable_recovery_lag  # -1 before version 1, whose brokers refuse to hear of offsets
    return HeartbeatAnswer(
        error=message.error_code,
        message=message.error_message or "",
        epoch=message.member_epoch,
        heartbeat_interval_ms=message.heartbeat_interval_ms,
        acceptable_recovery_lag=max(0, lag),
        task_offset_interval_ms=message.task_offset_interval_ms if lag >= 0 else 0,
        status=tuple(GroupStatus(each.status_code, each.status_detail) for each in message.status or ()),
        active=tasks_of(message.active_tasks),
        standby=tasks_of(message.standby_tasks),
        warmup=tasks_of(message.warmup_tasks),
        endpoint_epoch=message.endpoint_information_epoch,
        endpoints=_endpoints(message.partitions_by_user_endpoint),
    )


def _endpoints(messages: Iterable[Any] | None) -> tuple[EndpointPartitions, ...] | None:
    if messages is None:
        return None
    return tuple(
        EndpointPartitions(
            Endpoint(each.user_endpoint.host, each.user_endpoint.port),
            _places(each.active_partitions),
            _places(each.standby_partitions),
        )
        for each in messages
    )


def _places(topic_partitions: Iterable[Any]) -> frozenset[tuple[str, int]]:
    return frozenset((each.topic, number) for each in topic_partitions for number in each.partitions)
