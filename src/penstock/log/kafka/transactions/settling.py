"""The repair of hanging transactions, which a broker has left open though their coordinator has ended them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from penstock.base.log_lines import own_logger
from penstock.log.kafka.failures import error_of
from penstock.log.kafka.transactions.fenced_producers import is_own_id
from penstock.log.kafka.wire.hanging import find_hanging, settle

if TYPE_CHECKING:
    from penstock.log.kafka.clients.connections import Clients
    from penstock.log.kafka.cluster_topics import Topics

__all__ = ["settle_hanging"]

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
