"""The consumer or producer of a log, embedded or Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.log.base import TopicLog
from penstock.log.client_interfaces import ConsumerOptions, LogConsumer, LogProducer, ProducerOptions, RebalanceListener
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log

if TYPE_CHECKING:
    from penstock.log.kafka.log import KafkaLog

__all__ = ["open_consumer", "open_producer"]


def open_consumer(
    log: TopicLog | str, options: ConsumerOptions, listener: RebalanceListener
) -> tuple[LogConsumer, TopicLog | None]:
    """Make the consumer of a log; also return the log if it was opened for this."""
    topic_log, opened = _opened(log, options.settings)
    if isinstance(topic_log, EmbeddedLog):
        from penstock.log.embedded.clients import EmbeddedConsumer

        return EmbeddedConsumer(topic_log, options, listener), opened
    from penstock.log.kafka.clients.consumer import KafkaConsumer

    kafka = _kafka(topic_log)
    return KafkaConsumer(kafka, kafka.clients, options, listener), opened


def open_producer(log: TopicLog | str, options: ProducerOptions) -> tuple[LogProducer, TopicLog | None]:
    """Make the producer of a log; also return the log if it was opened for this."""
    topic_log, opened = _opened(log, options.settings)
    if isinstance(topic_log, EmbeddedLog):
        from penstock.log.embedded.clients import EmbeddedProducer

        return EmbeddedProducer(topic_log, options), opened
    from penstock.log.kafka.clients.producer import KafkaProducer
    from penstock.log.kafka.clients.transactional_producer import TransactionalProducer

    kafka = _kafka(topic_log)
    if options.transactional_id and not kafka.clients.only_of_librdkafka():
        return TransactionalProducer(kafka.clients, kafka.batch_limit_bytes, options), opened
    return KafkaProducer(kafka.clients, kafka.partitions, kafka.write_plainly, options), opened


def _opened(log: TopicLog | str, settings: Mapping[str, str]) -> tuple[TopicLog, TopicLog | None]:
    if not isinstance(log, str):
        return log, None
    opened = open_log(log, settings)
    return opened, opened


def _kafka(log: object) -> KafkaLog:
    from penstock.log.kafka.log import KafkaLog

    assert isinstance(log, KafkaLog)  # noqa: S101 - there are two kinds of logs
    return log
