"""Fetching and committing of consumer groups' offsets.

librdkafka's admin client aborts the whole process if the coordinator of a group cannot answer yet (2.16: a broker that
starts), so these two requests are made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.kafka.wire.protocol_errors import check
from penstock.log.membership import GroupMembership, StreamsMembership

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.members import JoinedMember

__all__ = [
    "commit_as_streams_member",
    "commit_offsets",
    "committed_offsets",
    "offsets_by_topic",
    "partitions_by_topic",
]

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
