"""The partition that holds a group's records: how far it goes, and whether its leader has lost the newest ones.

A leader that was elected although it lacks records, or a broker whose disk lost its last writes, begins its epoch at an
older offset. So the end of an epoch shows whether what was written in it is still there (KIP-320).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.base.java_text.hashing import string_hash
from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.offsets import LATEST
from penstock.log.kafka.wire.protocol_errors import check

if TYPE_CHECKING:
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["LogEnd", "group_log_end", "has_lost"]

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
