"""Descriptions and names of streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.log.kafka.wire.protocol_errors import check
from penstock.log.streams_groups.description import (
    Assignment,
    DescribedMember,
    Endpoint,
    GroupSubtopology,
    GroupTask,
    GroupTopology,
    InternalTopicSpec,
    StreamsGroupDescription,
    Tags,
)

if TYPE_CHECKING:
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["describe_streams_group", "list_streams_groups", "set_group_setting", "tasks_of"]

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


def tasks_of(given: Iterable[Any] | None) -> frozenset[GroupTask] | None:
    """Return the tasks of a message's ``TaskIds``; None stays None."""
    if given is None:
        return None
    return frozenset(GroupTask(each.subtopology_id, number) for each in given for number in each.partitions)


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


def _subtopology_of(given: Any) -> GroupSubtopology:
    return GroupSubtopology(
        id=given.subtopology_id,
        source_topics=tuple(given.source_topics),
        changelogs=tuple(map(_spec_of, given.state_changelog_topics)),
        repartition_sinks=tuple(given.repartition_sink_topics),
        repartition_sources=tuple(map(_spec_of, given.repartition_source_topics)),
    )


def _spec_of(given: Any) -> InternalTopicSpec:
    return InternalTopicSpec(given.name, given.partitions, given.replication_factor, _pairs(given.topic_configs))


def _pairs(given: Iterable[Any]) -> Tags:
    return tuple((each.key, each.value) for each in given)


def _member_of(given: Any) -> DescribedMember:
    endpoint = given.user_endpoint
    return DescribedMember(
        member=given.member_id,
        epoch=given.member_epoch,
        instance=given.instance_id,
        rack=given.rack_id,
        client=given.client_id,
        host=given.client_host,
        topology_epoch=given.topology_epoch,
        process=given.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=_pairs(given.client_tags),
        task_offsets=_offsets_of(given.task_offsets),
        task_end_offsets=_offsets_of(given.task_end_offsets),
        assignment=_assignment_of(given.assignment),
        target=_assignment_of(given.target_assignment),
        is_classic=given.is_classic,
    )


def _assignment_of(given: Any) -> Assignment:
    roles = (given.active_tasks, given.standby_tasks, given.warmup_tasks)
    return Assignment(*(tasks_of(each) or frozenset() for each in roles))


def _offsets_of(given: Iterable[Any]) -> Mapping[GroupTask, int]:
    return {GroupTask(each.subtopology_id, each.partition): each.offset for each in given}
