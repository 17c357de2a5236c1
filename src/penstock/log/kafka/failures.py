"""Kafka's errors as ours, and which of them may go away by themselves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError, KafkaException

from penstock.errors import FencedError, LogError, LogUnavailableError, ProductionError, UnknownTopicError

if TYPE_CHECKING:
    from penstock.log.kafka.access import Access

__all__ = ["error_of", "failure", "is_fenced", "is_transient", "may_be_repeated", "persist"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_TRANSIENT = {
    KafkaError._TRANSPORT,  # noqa: SLF001 - that is how these codes are called
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._WAIT_COORD,  # noqa: SLF001
    KafkaError._WAIT_CACHE,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._RETRY,  # noqa: SLF001
    KafkaError._NOENT,  # noqa: SLF001 - no leader is known, right after a start of the broker
    KafkaError._DESTROY,  # noqa: SLF001
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
_FENCED = {
    KafkaError._FENCED,  # noqa: SLF001
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}
# A producer does not get over these, but its successor may do what it could not.
_SPENT = {
    KafkaError._FATAL,  # noqa: SLF001
    KafkaError._GAPLESS_GUARANTEE,  # noqa: SLF001
    KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
    KafkaError._PURGE_QUEUE,  # noqa: SLF001
    KafkaError._STATE,  # noqa: SLF001
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
}
_FINAL = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
}
_UNKNOWN_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
_REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_MSG,
}
_UNREACHABLE = (
    "Is the broker up and reachable? See bootstrap.servers; and security.protocol, if its listener wants TLS or SASL."
)
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_WARN_EVERY_S = 5.0


def error_of(error: KafkaException | KafkaError) -> KafkaError:
    """The KafkaError inside an exception."""
    return error.args[0] if isinstance(error, KafkaException) else error


def is_transient(error: KafkaException | KafkaError) -> bool:
    """Whether the same request may work later: a broker restarts, a leader moves."""
    inner = error_of(error)
    return inner.code() in _TRANSIENT or (inner.retriable() and not inner.fatal())


def is_fenced(error: KafkaException | KafkaError) -> bool:
    """Whether a newer producer of the same transactional id has taken over."""
    inner = error_of(error)
    return inner.code() in _FENCED or (inner.fatal() and "fenced" in inner.str().lower())


def may_be_repeated(error: KafkaException | KafkaError) -> bool:
    """Whether a new producer may succeed where this one has failed."""
    inner = error_of(error)
    if inner.code() in _FINAL or inner.code() in _REFUSED:
        return False
    return inner.fatal() or inner.code() in _SPENT or is_fenced(inner) or is_transient(inner)


def failure(
    error: KafkaException | KafkaError, doing: str, access: Access | None = None, **facts: object
) -> LogError | UnknownTopicError:
    """The error to raise for one of Kafka's.

    Args:
        error: Kafka's.
        doing: What was tried, as "reading orders-0".
        access: Who we are to the cluster, to explain what it refuses.
        facts: For the error's attributes; ``operation`` as ACLs call it.
    """
    place = getattr(error, "place", None)  # of a batch that a leader has refused
    if place is not None:
        facts = {"topic": place.topic, "partition": place.partition, **facts}
    inner = error_of(error)
    code, text = inner.code(), f"{doing}: {inner.str()} ({inner.name()})"
    facts = {"code": inner.name(), **facts}
    if access is not None and (refused := access.explained(inner, doing, **facts)) is not None:
        return refused
    if is_fenced(inner):
        return FencedError(text, hint="A newer attempt or instance goes on; this one needs nothing.", **facts)
    if code in _UNKNOWN_TOPIC:
        return UnknownTopicError(text, hint="`penstock topics list` shows what there is.", **facts)
    if code in _REFUSED:
        return ProductionError(
            text,
            hint="See production.exception.handler, or raise the limit (max.message.bytes of the topic, "
            "producer.max.request.size).",
            **facts,
        )
    if is_transient(inner):
        return LogUnavailableError(text, hint=_UNREACHABLE, **facts)
    return LogError(text, hint="", **facts)


def persist(
    action: Callable[[], _T],
    doing: str,
    patience_s: float,
    access: Access | None = None,
    before_again: Callable[[], object] | None = None,
    **facts: object,
) -> _T:
    """Does it, again and again while it fails for reasons that may pass; warns loudly meanwhile.

    Args:
        action: What to do.
        doing: What that is, for messages.
        patience_s: How long.
        access: Explains refusals.
        before_again: Called before each try but the first.
        facts: For the error's attributes.

    Raises:
        AuthenticationError: The broker does not know us, or we do not trust it.
        AuthorizationError: The user lacks an ACL.
        LogUnavailableError: It did not work within ``patience_s``.
        LogError: It cannot work.
    """
    began = time.monotonic()
    warned, pause = began - _WARN_EVERY_S, _FIRST_PAUSE_S
    while True:
        try:
            return action()
        except KafkaException as error:
            now = time.monotonic()
            refused = access.refused_since(began) if access is not None else None
            if refused is not None or not is_transient(error) or now - began + pause > patience_s:
                raise failure(refused or error, doing, access, **facts) from error
            if now - warned >= _WARN_EVERY_S:
                left = patience_s - (now - began)
                _log.warning("%s: %s; trying again for %.0f s", doing, error_of(error).str(), left)
                warned = now
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
        if before_again is not None:
            before_again()
