"""Hanging transactions, ended for their coordinator but without markers in some partitions, and their repair.

A broker of version 4.3 that is stopped cleanly while a transaction commits may record it as complete without having
written its markers to partitions that no other broker leads. Readers with read_committed would wait there forever.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from penstock.base.log_lines import own_logger
from penstock.log.base import TopicPartition
from penstock.log.kafka.failures import error_of
from penstock.log.kafka.transactions.producer_fencing import is_own_id
from penstock.log.kafka.wire.connection import check
from penstock.log.kafka.wire.transactions import ProducerTransactions, list_transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.log.kafka.clients.connections import Clients
    from penstock.log.kafka.cluster_topics import Topics
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.produce import ProduceLimits

__all__ = ["settle_hanging"]

_COMMITTED, _ABORTED = "CompleteCommit", "CompleteAbort"


@dataclass(frozen=True, slots=True)
class Hanging:
    """A hanging transaction.

    Attributes:
        transactional_id: Its ``transactional.id``.
        committed: Whether its coordinator has committed it; else it has aborted it.
        places: The partitions in which it is still open.
    """

    transactional_id: str
    committed: bool
    places: tuple[TopicPartition, ...]


def find_hanging(cluster: Cluster, places: Iterable[TopicPartition], ours: Callable[[str], bool]) -> list[Hanging]:
    """Find the hanging transactions in these partitions, of the ids that ``ours`` accepts.

    Raises:
        KafkaException: Like librdkafka's admin client.
    """
    places = list(places)
    before = _open_transactions(cluster, places)
    ended = [each for each in list_transactions(cluster, _COMMITTED, _ABORTED) if ours(each.transactional_id)]
    after = _open_transactions(cluster, places)
    hanging = []
    for each in ended:
        # The same transaction, open after its coordinator has ended it: markers are written before that.
        start = before.get(each.producer_id, {})
        still = tuple(sorted(tp for tp, offset in after.get(each.producer_id, {}).items() if start.get(tp) == offset))
        if still:
            hanging.append(Hanging(each.transactional_id, each.transaction_state == _COMMITTED, still))
    return hanging


def settle(cluster: Cluster, hanging: Hanging, timeout_ms: int, limits: ProduceLimits) -> None:
    """Write the missing markers, by a transaction without records that ends like the hanging one.

    A marker ends everything that its producer has open in a partition, whatever the epoch. The present producer of the
    transactional id is fenced, which costs it one attempt.

    Raises:
        KafkaException: Like librdkafka's producer.
    """
    transactions = ProducerTransactions(cluster, hanging.transactional_id, "", limits)
    transactions.init(timeout_ms)
    transactions.end_without_records(hanging.places, committed=hanging.committed)


def _open_transactions(cluster: Cluster, places: Iterable[TopicPartition]) -> dict[int, dict[TopicPartition, int]]:
    """Return the open transactions: by producer id, the partitions and the first offsets."""
    from kafka.protocol.admin import DescribeProducersRequest

    topic = DescribeProducersRequest.TopicRequest
    by_leader: dict[Any, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for tp in places:
        by_leader[cluster.leader(tp)][tp.topic].append(tp.partition)
    first_offsets: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for connection, topics in by_leader.items():
        asked = [topic(name=name, partition_indexes=partitions) for name, partitions in topics.items()]
        for answer in connection.ask(DescribeProducersRequest(topics=asked)).topics:
            for partition in answer.partitions:
                check(partition.error_code, f"looking for producers of {answer.name}-{partition.partition_index}")
                tp = TopicPartition(answer.name, partition.partition_index)
                for producer in partition.active_producers:
                    if producer.current_txn_start_offset >= 0:
                        first_offsets[producer.producer_id][tp] = producer.current_txn_start_offset
    return dict(first_offsets)


_log = own_logger(__name__)


def settle_hanging(application: str, topics: Topics, clients: Clients) -> None:
    """Find hanging transactions and end them as their coordinator has decided; failures are logged.

    It searches all topics that the user may see, since outputs hang with the ledger. Kafka's `kafka-transactions.sh`
    finds such transactions too, but can only abort them.
    """
    cluster = clients.cluster()
    try:
        places = topics.places(topics.counts())
        for transaction in find_hanging(cluster, places, partial(is_own_id, application)):
            settle(cluster, transaction, clients.timeouts.least_ms, clients.limits())
            _log.warning(
                "the %s transaction of %s was open in %s, where the broker had lost its end; it is ended there now",
                "committed" if transaction.committed else "aborted",
                transaction.transactional_id,
                ", ".join(f"{tp.topic}-{tp.partition}" for tp in transaction.places),
            )
    except KafkaException as error:
        cluster.forget()
        _log.warning("the search for hanging transactions has failed: %s", error_of(error).str())
