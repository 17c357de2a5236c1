"""Deletion of the records before an offset: one request to each leader, all in flight at the same time.

librdkafka's admin client goes on asking the leaders that it knows after they have moved, so this request is made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.protocol_errors import NO_CONNECTION, check, failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["delete_records"]

_DELETION_MS = 10_000


def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Remove the records before these offsets; return the first offset of each partition.

    A partition that fails, or a broker, keeps no other from being done.

    Raises:
        KafkaException: Like librdkafka's admin client, of one of those that have failed. There are no retries here.
    """
    low_watermarks: dict[TopicPartition, int] = {}
    by_leader, errors = cluster.reachable(before)
    sent = []
    try:
        for connection, places in by_leader.items():
            try:
                request = _request({tp: before[tp] for tp in places})
                sent.append((connection, connection.send(request), places))
            except KafkaException as error:
                errors |= dict.fromkeys(places, error)
        for connection, number, places in sent:
            try:
                answer = connection.receive(number)
            except KafkaException as error:
                errors |= dict.fromkeys(places, error)
                continue
            for topic in answer.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    try:
                        check(each.error_code, f"deleting records of {tp.topic}-{tp.partition}")
                    except KafkaException as error:
                        errors[tp] = error
                    else:
                        low_watermarks[tp] = each.low_watermark
    except BaseException:
        cluster.forget()  # answers are still to come
        raise
    for tp in before.keys() - low_watermarks.keys() - errors.keys():
        errors[tp] = failed(NO_CONNECTION, f"the answer does not name {tp.topic}-{tp.partition}")
    if errors:
        cluster.forget()  # leaders have moved, or connections are broken
        raise errors[min(errors)]
    return low_watermarks


def _request(before: Mapping[TopicPartition, int]) -> Any:
    from kafka.protocol.admin import DeleteRecordsRequest

    topic = DeleteRecordsRequest.DeleteRecordsTopic
    topics: dict[str, list[Any]] = {}
    for tp, offset in before.items():
        partition = topic.DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        topics.setdefault(tp.topic, []).append(partition)
    return DeleteRecordsRequest(
        topics=[topic(name=name, partitions=each) for name, each in topics.items()],
        timeout_ms=_DELETION_MS,
        min_version=1,
        max_version=2,
    )
