"""A static member that is alone in its consumer group: it joins, stays and leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log.kafka.wire.protocol_errors import check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["JoinedMember", "heartbeat", "join_alone", "leave"]

_NEW = ""
_TYPE = "consumer"  # for Kafka's tools, which read subscription and assignment
_PROTOCOL = "penstock"  # no consumer has it, so the coordinator refuses consumers that would share the partitions
_REBALANCE_MS = 10_000


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """The identity of a member, sent with each request.

    Attributes:
        group: The ``group.id``.
        instance: Its ``group.instance.id``.
        member: The member id, assigned by the coordinator.
        generation: The generation of the group.
    """

    group: str
    instance: str
    member: str
    generation: int


def join_alone(
    cluster: Cluster, group: str, instance: str, topics: Mapping[str, int], session_timeout_ms: int
) -> JoinedMember:
    """Join a group as its only member, with all partitions; replaces a member of the same instance.

    Args:
        cluster: The cluster.
        group: The ``group.id``.
        instance: The ``group.instance.id``.
        topics: The numbers of partitions of its topics; 0 for those that are still to be created.
        session_timeout_ms: The group removes it without a heartbeat for this long.

    Raises:
        KafkaException: Like librdkafka's consumer; INCONSISTENT_GROUP_PROTOCOL if there are other members.
    """
    from kafka.protocol.consumer import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
        JoinGroupRequest,
        SyncGroupRequest,
    )

    leave(cluster, group, instance)  # else the group would keep the assignment of the member before
    subscription = ConsumerProtocolSubscription(version=0, topics=sorted(topics), user_data=None)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=_PROTOCOL, metadata=subscription)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=_REBALANCE_MS,
        member_id=_NEW,
        group_instance_id=instance,
        protocol_type=_TYPE,
        protocols=[protocol],
        reason=None,
        min_version=5,
        max_version=8,
    )
    with cluster.coordinating(group, "group") as coordinator:
        joined = coordinator.ask(request)
        check(joined.error_code, f"joining group {group!r}")
    assigned_topic = ConsumerProtocolAssignment.TopicPartition
    assigned_topics = [
        assigned_topic(topic=topic, partitions=list(range(count))) for topic, count in sorted(topics.items()) if count
    ]
    assignment = ConsumerProtocolAssignment(version=0, assigned_partitions=assigned_topics, user_data=None)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        protocol_type=_TYPE,
        protocol_name=_PROTOCOL,
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
        min_version=3,
        max_version=5,
    )
    with cluster.coordinating(group, "group") as coordinator:
        check(coordinator.ask(sync).error_code, f"joining group {group!r}")
    return JoinedMember(group, instance, joined.member_id, joined.generation_id)


def heartbeat(cluster: Cluster, me: JoinedMember) -> None:
    """Send a heartbeat.

    Raises:
        KafkaException: REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, ...: it must join again.
    """
    from kafka.protocol.consumer import HeartbeatRequest

    request = HeartbeatRequest(
        group_id=me.group,
        generation_id=me.generation,
        member_id=me.member,
        group_instance_id=me.instance,
        min_version=3,
        max_version=4,
    )
    with cluster.coordinating(me.group, "group") as coordinator:
        check(coordinator.ask(request).error_code, f"staying in group {me.group!r}")


def leave(cluster: Cluster, group: str, instance: str) -> None:
    """Remove the member of this instance from the group, if there is one.

    Raises:
        KafkaException: The coordinator does not answer, or refuses the user.
    """
    from kafka.protocol.consumer import LeaveGroupRequest

    member = LeaveGroupRequest.MemberIdentity(member_id=_NEW, group_instance_id=instance, reason=None)
    request = LeaveGroupRequest(group_id=group, members=[member], min_version=3, max_version=5)
    with cluster.coordinating(group, "group") as coordinator:
        check(coordinator.ask(request).error_code, f"leaving group {group!r}")
