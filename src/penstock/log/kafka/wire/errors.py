"""Errors of the protocol, raised as librdkafka's clients raise them, so that one place understands both."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

__all__ = ["NO_CONNECTION", "REFUSED_USER", "TIMED_OUT", "TLS_FAILED", "check", "failed"]

# librdkafka's own codes; the underscore belongs to their names.
NO_CONNECTION: int = KafkaError._TRANSPORT  # noqa: SLF001
TIMED_OUT: int = KafkaError._TIMED_OUT  # noqa: SLF001
TLS_FAILED: int = KafkaError._SSL  # noqa: SLF001
REFUSED_USER: int = KafkaError._AUTHENTICATION  # noqa: SLF001


def failed(code: int, text: str) -> KafkaException:
    """The exception of this code."""
    return KafkaException(KafkaError(code, text))


def check(code: int, doing: str) -> None:
    """Raises if this code of an answer is an error.

    Raises:
        KafkaException: As librdkafka's clients raise it.
    """
    if code:
        raise failed(code, f"{doing}: {KafkaError(code).str()}")
