"""Heartbeats of the members of streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.log.kafka.wire.protocol_errors import failed
from penstock.log.kafka.wire.streams_groups import tasks_of
from penstock.log.streams_groups.description import (
    Endpoint,
    GroupTask,
    GroupTopology,
    InternalTopicSpec,
    TaskSums,
)
from penstock.log.streams_groups.messages import (
    EndpointPartitions,
    GroupStatus,
    HeartbeatAnswer,
    HeartbeatError,
    StreamsHeartbeat,
)

if TYPE_CHECKING:
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["heartbeat_request", "send_heartbeat"]

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


def _endpoints(given: Iterable[Any] | None) -> tuple[EndpointPartitions, ...] | None:
    if given is None:
        return None
    return tuple(
        EndpointPartitions(
            Endpoint(each.user_endpoint.host, each.user_endpoint.port),
            _places(each.active_partitions),
            _places(each.standby_partitions),
        )
        for each in given
    )


def _places(given: Iterable[Any]) -> frozenset[tuple[str, int]]:
    return frozenset((each.topic, number) for each in given for number in each.partitions)
