"""Which port a consumer or producer gets: the log decides."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.log.base import TopicLog
from penstock.log.consuming import ConsumerOptions, ConsumerPort, RebalanceListener
from penstock.log.embedded import EmbeddedLog
from penstock.log.open import open_log
from penstock.log.producing import ProducerPort

__all__ = ["consumer_port", "producer_port"]


def consumer_port(
    log: TopicLog | str, options: ConsumerOptions, listener: RebalanceListener
) -> tuple[ConsumerPort, TopicLog | None]:
    """The port of one consumer, and the log that was opened for it, if there was none."""
    opened = open_log(log) if isinstance(log, str) else None
    found = log if opened is None else opened
    if isinstance(found, EmbeddedLog):
        from penstock.log.embedded_consumer import EmbeddedConsumer

        return EmbeddedConsumer(found, options, listener), opened
    raise TypeError(found)


def producer_port(
    log: TopicLog | str,
    transactional_id: str,
    linger_ms: int,
    batch_bytes: int,
    settings: Mapping[str, str],  # noqa: ARG001
) -> tuple[ProducerPort, TopicLog | None]:
    """As `consumer_port`, for a producer."""
    opened = open_log(log) if isinstance(log, str) else None
    found = log if opened is None else opened
    if isinstance(found, EmbeddedLog):
        from penstock.log.embedded_producer import EmbeddedProducer

        return EmbeddedProducer(found, transactional_id, linger_ms, batch_bytes), opened
    raise TypeError(found)
