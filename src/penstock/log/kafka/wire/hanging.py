"""Transactions that have ended for their coordinator, but not in all partitions: their markers are missing there.

A broker of version 4.3 that is stopped cleanly while a transaction commits may note it as complete without having
written its markers into partitions that no other broker leads. Readers with read_committed would wait there without
end.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.errors import check
from penstock.log.kafka.wire.transactions import TransactionalWriter, list_transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.produce import ProduceLimits

__all__ = ["Hanging", "find_hanging", "settle"]

_COMMITTED, _ABORTED = "CompleteCommit", "CompleteAbort"


@dataclass(frozen=True, slots=True)
class Hanging:
    """One of them.

    Attributes:
        transactional_id: Whose.
        committed: What its coordinator has decided.
        places: Where it is still open.
    """

    transactional_id: str
    committed: bool
    places: tuple[TopicPartition, ...]


def find_hanging(cluster: Cluster, places: Iterable[TopicPartition], ours: Callable[[str], bool]) -> list[Hanging]:
    """Those of our transactional ids that are open in these partitions.

    Raises:
        KafkaException: As librdkafka's admin client raises it.
    """
    places = list(places)
    before = _open_transactions(cluster, places)
    ended = [each for each in list_transactions(cluster, _COMMITTED, _ABORTED) if ours(each.transactional_id)]
    after = _open_transactions(cluster, places)
    found = []
    for each in ended:
        # The same transaction, open after its coordinator has ended it: markers come before that.
        start = before.get(each.producer_id, {})
        still = tuple(sorted(tp for tp, offset in after.get(each.producer_id, {}).items() if start.get(tp) == offset))
        if still:
            found.append(Hanging(each.transactional_id, each.transaction_state == _COMMITTED, still))
    return found


def settle(cluster: Cluster, hanging: Hanging, timeout_ms: int, limits: ProduceLimits) -> None:
    """Has the markers written that are missing: by a transaction without records that ends as the first one did.

    A marker counts for all that its producer has open in a partition, whatever the epoch. Whoever has the transactional
    id now is fenced, which costs an attempt.

    Raises:
        KafkaException: As librdkafka's producer raises it.
    """
    writer = TransactionalWriter(cluster, hanging.transactional_id, timeout_ms, limits)
    writer.init()
    writer.end_without_records(hanging.places, committed=hanging.committed)


def _open_transactions(cluster: Cluster, places: Iterable[TopicPartition]) -> dict[int, dict[TopicPartition, int]]:
    """Producer id -> where it has an open transaction, and at which offset that begins."""
    from kafka.protocol.admin import DescribeProducersRequest

    topic = DescribeProducersRequest.TopicRequest
    by_leader: dict[Any, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for tp in places:
        by_leader[cluster.leader(tp)][tp.topic].append(tp.partition)
    found: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for connection, topics in by_leader.items():
        asked = [topic(name=name, partition_indexes=partitions) for name, partitions in topics.items()]
        for answer in connection.ask(DescribeProducersRequest(topics=asked)).topics:
            for partition in answer.partitions:
                check(partition.error_code, f"looking for producers of {answer.name}-{partition.partition_index}")
                place = TopicPartition(answer.name, partition.partition_index)
                for producer in partition.active_producers:
                    if producer.current_txn_start_offset >= 0:
                        found[producer.producer_id][place] = producer.current_txn_start_offset
    return dict(found)
