"""Deletion of the records before an offset: one request to each leader, all in flight at the same time.

librdkafka's admin client goes on asking the leaders that it knows after they have moved, so this request is made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.errors import NO_CONNECTION, check, failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["delete_records"]

_DELETION_MS = 10_000


def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Remove the records before these offsets; return the first offset of each partition.

    Raises:
        KafkaException: Like librdkafka's admin client. There are no retries here.
    """
    found: dict[TopicPartition, int] = {}
    try:
        sent = []
        for connection, places in cluster.by_leader(before).items():
            sent.append((connection, connection.send(_request({place: before[place] for place in places}))))
        for connection, number in sent:
            for topic in connection.receive(number).topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.name, each.partition_index)
                    check(each.error_code, f"deleting records of {place.topic}-{place.partition}")
                    found[place] = each.low_watermark
    except BaseException:
        cluster.forget()  # leaders have moved, or answers are still to come
        raise
    for place in before.keys() - found.keys():
        raise failed(NO_CONNECTION, f"the answer does not name {place.topic}-{place.partition}")
    return found


def _request(before: Mapping[TopicPartition, int]) -> Any:
    from kafka.protocol.admin import DeleteRecordsRequest

    topic = DeleteRecordsRequest.DeleteRecordsTopic
    topics: dict[str, list[Any]] = {}
    for place, offset in before.items():
        partition = topic.DeleteRecordsPartition(partition_index=place.partition, offset=offset)
        topics.setdefault(place.topic, []).append(partition)
    return DeleteRecordsRequest(
        topics=[topic(name=name, partitions=each) for name, each in topics.items()],
        timeout_ms=_DELETION_MS,
        min_version=1,
        max_version=2,
    )
