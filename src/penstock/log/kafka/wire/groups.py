"""Offsets of many partitions at once, and consumer groups: their offsets, a member that is alone.

librdkafka's admin client waits for a leader that is gone until the request times out, so this request is made here.

librdkafka's admin client aborts the whole process if the coordinator of a group cannot answer yet (2.16: a broker that
starts), so these two requests are made here.

A leader that was elected although it lacks records, or a broker whose disk lost its last writes, begins its epoch at an
older offset. So the end of an epoch shows whether what was written in it is still there (KIP-320).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.base.java_text.hashing import string_hash
from penstock.log.base import GroupMembership, OffsetAndMetadata, OffsetAndTime, StreamsMembership, TopicPartition
from penstock.log.kafka.wire.connection import NO_CONNECTION, check, failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.log.base import Isolation
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = [
    "EARLIEST",
    "LATEST",
    "NEWEST_TIME",
    "JoinedMember",
    "LogEnd",
    "commit_as_streams_member",
    "commit_offsets",
    "committed_offsets",
    "group_log_end",
    "has_lost",
    "heartbeat",
    "join_alone",
    "leave",
    "list_offsets",
    "offsets_by_topic",
    "partitions_by_topic",
]

LATEST, EARLIEST, NEWEST_TIME = -1, -2, -3  # in place of a timestamp
_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
_CONSUMER = -1


def list_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, OffsetAndTime]:
    """Find each partition's first offset whose timestamp is at least this; offset -1 if there is none.

    Args:
        cluster: The cluster.
        times: Timestamps, or one of `LATEST`, `EARLIEST` and `NEWEST_TIME` (the record with the largest timestamp).
        isolation: Whether records after the first open transaction count.

    Raises:
        KafkaException: Like librdkafka's admin client. There are no retries here.
    """
    offsets: dict[TopicPartition, OffsetAndTime] = {}
    try:
        sent = []
        for connection, places in cluster.by_leader(times).items():
            request = _request({tp: times[tp] for tp in places}, isolation)
            sent.append((connection, connection.send(request)))
        for connection, number in sent:
            for topic in connection.receive(number).topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    check(each.error_code, f"asking for an offset of {tp.topic}-{tp.partition}")
                    offsets[tp] = OffsetAndTime(each.offset, each.timestamp)
    except BaseException:
        cluster.forget()  # leaders have moved, or answers are still to come
        raise
    for tp in times.keys() - offsets.keys():
        raise failed(NO_CONNECTION, f"the answer lacks an offset of {tp.topic}-{tp.partition}")
    return offsets


def _request(times: Mapping[TopicPartition, int], isolation: Isolation) -> Any:
    from kafka.protocol.consumer import ListOffsetsRequest

    topic = ListOffsetsRequest.ListOffsetsTopic
    topics: dict[str, list[Any]] = {}
    for tp, timestamp in times.items():
        partition = topic.ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=-1, timestamp=timestamp
        )
        topics.setdefault(tp.topic, []).append(partition)
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=_LEVELS[isolation],
        topics=[topic(name=name, partitions=each) for name, each in topics.items()],
        min_version=7 if NEWEST_TIME in times.values() else 2,
        max_version=7,
    )


_TOPIC = "__consumer_offsets"
_HALF, _WHOLE = 1 << 31, 1 << 32
_NO_REPLICA, _ANY_EPOCH = -1, -1


class LogEnd(NamedTuple):
    """The end of a partition, and the epoch of its leader."""

    offset: int
    epoch: int


def group_log_end(cluster: Cluster, group: str) -> LogEnd | None:
    """Return the end of the partition with a group's records; None if there is none, or the user may not see it.

    Raises:
        KafkaException: Like librdkafka's admin client. There are no retries here.
    """
    from kafka.protocol.consumer import ListOffsetsRequest

    tp = _place_of(cluster, group)
    if tp is None:
        return None
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition(
        partition_index=tp.partition, current_leader_epoch=_ANY_EPOCH, timestamp=LATEST
    )
    request = ListOffsetsRequest(
        replica_id=_NO_REPLICA,
        isolation_level=0,
        topics=[topic(name=tp.topic, partitions=[partition])],
        min_version=4,
        max_version=7,
    )
    answer = cluster.leader(tp).ask(request).topics[0].partitions[0]
    check(answer.error_code, f"asking for the end of {tp.topic}-{tp.partition}")
    return LogEnd(answer.offset, answer.leader_epoch)


def has_lost(cluster: Cluster, group: str, end: LogEnd) -> bool:
    """Return whether a group's partition has lost all that was written behind an offset in an epoch and those before.

    Args:
        cluster: The cluster.
        group: The group.
        end: The offset and the epoch.

    Raises:
        KafkaException: Like librdkafka's admin client. There are no retries here.
    """
    from kafka.protocol.consumer import OffsetForLeaderEpochRequest

    tp = _place_of(cluster, group)
    if tp is None:
        return False
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = topic.OffsetForLeaderPartition(
        partition=tp.partition, current_leader_epoch=_ANY_EPOCH, leader_epoch=end.epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=_NO_REPLICA,
        topics=[topic(topic=tp.topic, partitions=[partition])],
        min_version=3,
        max_version=4,
    )
    answer = cluster.leader(tp).ask(request).topics[0].partitions[0]
    check(answer.error_code, f"asking for the end of an epoch of {tp.topic}-{tp.partition}")
    return bool(0 <= answer.end_offset <= end.offset)


def _place_of(cluster: Cluster, group: str) -> TopicPartition | None:
    count = cluster.partition_counts([_TOPIC]).get(_TOPIC)
    if not count:
        return None
    code = string_hash(group)
    size = 0 if code == _HALF else min(code, _WHOLE - code)  # Java's Utils.abs
    return TopicPartition(_TOPIC, size % count)


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


_NO_GENERATION = -1


def committed_offsets(
    cluster: Cluster, group: str, places: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Fetch a group's next offsets with their metadata.

    Args:
        cluster: The cluster.
        group: The ``group.id``.
        places: The partitions to ask for; None: all. A broker that is asked for all says nothing of a partition whose
            first offset a transaction is just about to commit; asked for it by name, it refuses until that has ended.

    Raises:
        KafkaException: Like librdkafka's admin client; UNSTABLE_OFFSET_COMMIT while a transaction commits offsets.
    """
    from kafka.protocol.consumer import OffsetFetchRequest

    doing = f"asking for the offsets of group {group!r}"
    topics = None
    if places is not None:
        partitions = partitions_by_topic(places)
        topic_of = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [topic_of(name=name, partition_indexes=numbers) for name, numbers in partitions.items()]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True, min_version=2, max_version=7)
    with cluster.coordinating(group, "group") as coordinator:
        answer = coordinator.ask(request)
        check(answer.error_code, doing)
        offsets = {}
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, f"{doing} in {topic.name}-{each.partition_index}")
                if each.committed_offset >= 0:
                    tp = TopicPartition(topic.name, each.partition_index)
                    offsets[tp] = OffsetAndMetadata(each.committed_offset, each.metadata or "")
    return offsets


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    me: JoinedMember | None = None,
) -> None:
    """Commit a group's next offsets; refused while it has members, unless one of them commits.

    Args:
        cluster: The cluster.
        group: The ``group.id``.
        offsets: The next offsets, with texts to store with them.
        me: The committing member.

    Raises:
        KafkaException: Like librdkafka's admin client.
    """
    if me is None:
        _commit(cluster, group, offsets, GroupMembership("", "", _NO_GENERATION), (2, 8))
    else:
        _commit(cluster, group, offsets, GroupMembership(me.member, me.instance, me.generation), (7, 8))


def commit_as_streams_member(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], me: StreamsMembership
) -> None:
    """Commit next offsets as a member of a streams group.

    Raises:
        KafkaException: Like librdkafka's admin client; STALE_MEMBER_EPOCH or UNKNOWN_MEMBER_ID if it is fenced.
    """
    _commit(cluster, group, offsets, GroupMembership(me.member, me.instance, me.epoch), (9, 9))


def partitions_by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic, in their order, as requests have them."""
    by_topic: dict[str, list[int]] = {}
    for tp in places:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return by_topic


def offsets_by_topic(offsets: Mapping[TopicPartition, OffsetAndMetadata], topic: Any, partition: Any) -> list[Any]:
    """Return offsets as requests have them.

    Args:
        offsets: The offsets.
        topic: The request's class of topics.
        partition: Its class of partitions.
    """
    by_topic: dict[str, list[Any]] = {}
    for tp, each in offsets.items():
        entry = partition(
            partition_index=tp.partition,
            committed_offset=each.offset,
            committed_leader_epoch=-1,
            committed_metadata=each.metadata,
        )
        by_topic.setdefault(tp.topic, []).append(entry)
    return [topic(name=name, partitions=entries) for name, entries in by_topic.items()]


def _commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    me: GroupMembership,
    versions: tuple[int, int],
) -> None:
    from kafka.protocol.consumer import OffsetCommitRequest

    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=me.generation,
        member_id=me.member,
        group_instance_id=me.instance or None,
        retention_time_ms=-1,
        topics=offsets_by_topic(offsets, topic, topic.OffsetCommitRequestPartition),
        min_version=versions[0],
        max_version=versions[1],
    )
    with cluster.coordinating(group, "group") as coordinator:
        for topic_answer in coordinator.ask(request).topics:
            for each in topic_answer.partitions:
                check(each.error_code, f"committing {topic_answer.name}-{each.partition_index} for group {group!r}")
