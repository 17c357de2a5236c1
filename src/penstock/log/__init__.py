"""Topic logs: the interface, the embedded log, Kafka; and plain consumers and producers for both.

>>> from penstock.log import Consumer, Producer, open_log
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.log.base import TopicPartition as TopicPartition
    from penstock.log.client_interfaces import ConsumerRecord as ConsumerRecord
    from penstock.log.client_interfaces import Delivery as Delivery
    from penstock.log.client_interfaces import RebalanceListener as RebalanceListener
    from penstock.log.clients.asynchronous import AsyncConsumer as AsyncConsumer
    from penstock.log.clients.asynchronous import AsyncProducer as AsyncProducer
    from penstock.log.clients.consumer import Consumer as Consumer
    from penstock.log.clients.producer import Producer as Producer
    from penstock.log.open import open_log as open_log

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "Producer",
    "RebalanceListener",
    "TopicPartition",
    "open_log",
]

# Loaded when first used: importing this package loads neither PyArrow nor a client of Kafka.
__getattr__ = lazy_names(
    __name__,
    {
        "AsyncConsumer": "clients.asynchronous",
        "AsyncProducer": "clients.asynchronous",
        "Consumer": "clients.consumer",
        "ConsumerRecord": "client_interfaces",
        "Delivery": "client_interfaces",
        "Producer": "clients.producer",
        "RebalanceListener": "client_interfaces",
        "TopicPartition": "base",
        "open_log": "open",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
