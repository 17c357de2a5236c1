"""Offsets of many partitions at once: one request to each broker, all in flight at the same time.

librdkafka's admin client waits for a leader that is gone until the request times out, so this request is made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.log.base import OffsetAndTime, TopicPartition
from penstock.log.kafka.wire.protocol_errors import NO_CONNECTION, check, failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.log.base import Isolation
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["EARLIEST", "LATEST", "NEWEST_TIME", "list_offsets"]

LATEST, EARLIEST, NEWEST_TIME = -1, -2, -3  # in place of a timestamp
_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
_NO_REPLICA = -1


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
        replica_id=_NO_REPLICA,
        isolation_level=_LEVELS[isolation],
        topics=[topic(name=name, partitions=each) for name, each in topics.items()],
        min_version=7 if NEWEST_TIME in times.values() else 2,
        max_version=7,
    )
