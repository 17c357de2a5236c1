"""Which port a consumer or producer gets: the log decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.log.base import TopicLog
from penstock.log.consuming import ConsumerOptions, ConsumerPort, RebalanceListener
from penstock.log.embedded import EmbeddedLog
from penstock.log.open import open_log
from penstock.log.producing import ProducerPort

if TYPE_CHECKING:
    from penstock.log.kafka.log import KafkaLog

__all__ = ["consumer_port", "producer_port"]


def consumer_port(
    log: TopicLog | str, options: ConsumerOptions, listener: RebalanceListener
) -> tuple[ConsumerPort, TopicLog | None]:
    """The port of one consumer, and the log that was opened for it, if there was none."""
    opened = open_log(log, options.settings) if isinstance(log, str) else None
    found = log if opened is None else opened
    if isinstance(found, EmbeddedLog):
        from penstock.log.embedded_consumer import EmbeddedConsumer

        return EmbeddedConsumer(found, options, listener), opened
    from penstock.log.kafka.consumer import KafkaConsumer

    return KafkaConsumer(_kafka(found), options, listener), opened


def producer_port(
    log: TopicLog | str, transactional_id: str, linger_ms: int, batch_bytes: int, settings: Mapping[str, str]
) -> tuple[ProducerPort, TopicLog | None]:
    """As `consumer_port`, for a producer."""
    opened = open_log(log, settings) if isinstance(log, str) else None
    found = log if opened is None else opened
    if isinstance(found, EmbeddedLog):
        from penstock.log.embedded_producer import EmbeddedProducer

        return EmbeddedProducer(found, transactional_id, linger_ms, batch_bytes), opened
    from penstock.log.kafka.producer import KafkaProducer

    return KafkaProducer(_kafka(found), transactional_id, linger_ms, batch_bytes), opened


def _kafka(log: object) -> KafkaLog:
    from penstock.log.kafka.log import KafkaLog

    assert isinstance(log, KafkaLog)  # noqa: S101 - there are two kinds of logs
    return log
