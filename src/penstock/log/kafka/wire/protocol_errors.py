"""Errors of the protocol, raised as librdkafka's clients do, so that both are handled alike."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from penstock.log.kafka.error_codes import LocalCode

__all__ = ["NO_CONNECTION", "REFUSED_USER", "TIMED_OUT", "TLS_FAILED", "check", "failed"]

NO_CONNECTION = LocalCode.TRANSPORT
TIMED_OUT = LocalCode.TIMED_OUT
TLS_FAILED = LocalCode.SSL
REFUSED_USER = LocalCode.AUTHENTICATION


def failed(code: int, text: str) -> KafkaException:
    """Make the exception of a code."""
    return KafkaException(KafkaError(code, text))


def check(code: int, doing: str) -> None:
    """Raise if this code of an answer is an error.

    Raises:
        KafkaException: Like librdkafka's clients.
    """
    if code:
        raise failed(code, f"{doing}: {KafkaError(code).str()}")
