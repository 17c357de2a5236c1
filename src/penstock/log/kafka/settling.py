"""Transactions of an application that a broker has left open, though they have ended: they are ended everywhere."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from penstock.log.kafka.failures import error_of
from penstock.log.kafka.wire.hanging import find_hanging, settle

if TYPE_CHECKING:
    from penstock.log.kafka.clients import Clients
    from penstock.log.kafka.topics import Topics

__all__ = ["settle_hanging"]

_log = logging.getLogger(__name__)


def settle_hanging(application: str, topics: Topics, clients: Clients) -> None:
    """Looks for them and has them ended as their coordinator had decided; what hinders that is logged.

    It looks at all topics that the user may see, since outputs hang with the ledger. Kafka's `kafka-transactions.sh`
    finds such transactions too, but can only abort them.
    """
    cluster = clients.cluster()
    try:
        places = topics.places(topics.counts())
        for found in find_hanging(cluster, places, lambda name: name.startswith(f"{application}-")):
            settle(cluster, found, clients.transaction_timeout_ms, clients.limits())
            _log.warning(
                "the %s transaction of %s was open in %s, where the broker had lost its end; it is ended there now",
                "committed" if found.committed else "aborted",
                found.transactional_id,
                ", ".join(f"{tp.topic}-{tp.partition}" for tp in found.places),
            )
    except KafkaException as error:
        cluster.forget()
        _log.warning("transactions that hang cannot be looked for: %s", error_of(error).str())
