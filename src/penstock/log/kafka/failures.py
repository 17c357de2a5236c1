"""Translation of Kafka's errors into Penstock's, and retries of temporary ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError, KafkaException

from penstock.base.backoff import Backoff
from penstock.base.log_lines import own_logger
from penstock.errors import FencedError, LogError, LogUnavailableError, ProductionError, UnknownTopicError
from penstock.log.kafka.error_codes import CODES, LOCAL_CODES, ErrorCategory
from penstock.log.kafka.remedies import name_of, remedy

if TYPE_CHECKING:
    from penstock.log.kafka.access import ClusterAccess

__all__ = [
    "error_of",
    "failure",
    "is_fenced",
    "is_transient",
    "category_of",
    "may_pass",
    "not_in_time",
    "patience_for",
    "persist",
    "removed_from_group",
    "too_large_here",
]

_log = own_logger(__name__)
_T = TypeVar("_T")
_UNREACHABLE = (
    "Is the broker up and reachable? See bootstrap.servers; and security.protocol, if its listener wants TLS or SASL."
)
_BUSY = "Is the cluster healthy? The broker's log may say more; the same may work later."
_LOST = "A new transaction of a new producer may succeed: begin again. The broker's log may say why this one failed."
_SETTLE_S = 10.0
_BACKOFF = Backoff(0.05, 0.3)  # an election takes seconds; rare retries would add to it
_WARN_AFTER_S = 0.5  # the leader of a new topic is known by then
_WARN_EVERY_S = 5.0


def error_of(error: KafkaException | KafkaError) -> KafkaError:
    """Return the KafkaError inside an exception."""
    return error.args[0] if isinstance(error, KafkaException) else error


def category_of(error: KafkaException | KafkaError) -> ErrorCategory:
    """Return the category of an error; for an unknown code the client library decides."""
    inner = error_of(error)
    code = inner.code()
    found = CODES.get(code) or LOCAL_CODES.get(code)
    if inner.fatal() and "fenced" in inner.str().lower():
        return ErrorCategory.FENCED
    if inner.fatal() and found not in (ErrorCategory.DENIED, ErrorCategory.REFUSED, ErrorCategory.FENCED):
        return ErrorCategory.ABORTABLE  # of one librdkafka producer; the next may succeed
    if found is None:
        return ErrorCategory.PASSES if inner.retriable() else ErrorCategory.FINAL
    return found


def is_transient(error: KafkaException | KafkaError) -> bool:
    """Return whether the same request may work later: a broker restarts, a leader moves."""
    return category_of(error) is ErrorCategory.PASSES


def may_pass(error: KafkaException | KafkaError) -> bool:
    """Return whether to retry within `patience_for` this error: it is transient, or a topic may not be known yet."""
    return category_of(error) in (ErrorCategory.PASSES, ErrorCategory.SETTLES)


def is_fenced(error: KafkaException | KafkaError) -> bool:
    """Return whether another producer of the same transactional id has taken over."""
    return category_of(error) is ErrorCategory.FENCED


def patience_for(error: KafkaException | KafkaError, patience_s: float) -> float:
    """Return the time for retries after this error; short for an unknown topic, as a new one is known in seconds."""
    return min(patience_s, _SETTLE_S) if category_of(error) is ErrorCategory.SETTLES else patience_s


def failure(
    error: KafkaException | KafkaError, doing: str, access: ClusterAccess | None = None, **facts: object
) -> LogError | UnknownTopicError:
    """Return the error to raise for one of Kafka's.

    Args:
        error: Kafka's error.
        doing: The attempted action, such as "reading orders-0".
        access: Explains refusals.
        facts: Attributes of the error; ``operation`` by its name in ACLs.
    """
    place = getattr(error, "place", None)  # of a batch refused by the leader
    if place is not None:
        facts = {"topic": place.topic, "partition": place.partition, **facts}
    inner = error_of(error)
    code, name, said = inner.code(), name_of(inner), inner.str()
    text = f"{said} ({name})" if said.startswith(doing) else f"{doing}: {said} ({name})"
    facts = {"code": name, **facts}
    if limit_bytes := getattr(error, "limit_bytes", 0):
        return too_large_here(doing, getattr(error, "size_bytes", 0), limit_bytes, **facts)
    if access is not None and (refused := access.explained(inner, doing, **facts)) is not None:
        return refused
    category = category_of(inner)
    if category is ErrorCategory.FENCED:
        return FencedError(
            text,
            hint="Another producer has taken over this transactional id: a newer attempt or instance goes on. If there "
            "is none, another program uses the same application.id or transactional.id.",
            **facts,
        )
    if category is ErrorCategory.SETTLES:
        return UnknownTopicError(
            text, hint="Create the topic: penstock topics create. `penstock topics list` shows all topics.", **facts
        )
    if category is ErrorCategory.REFUSED:
        return ProductionError(text, hint=remedy(code), **facts)
    if category is ErrorCategory.PASSES:
        return LogUnavailableError(text, hint=_UNREACHABLE if code < 0 else _BUSY, **facts)
    if category is ErrorCategory.ABORTABLE:
        return LogUnavailableError(text, hint=_LOST, **facts)
    return LogError(text, hint=remedy(code), **facts)


def too_large_here(doing: str, size_bytes: int, limit_bytes: int, **facts: object) -> ProductionError:
    """Make the error of a record that is larger than this client sends; no broker has seen it."""
    size = f" of {size_bytes:,} bytes" if size_bytes else ""
    return ProductionError(
        f"{doing}: a record{size} is larger than this client sends: {limit_bytes:,} bytes (max.request.size)",
        hint="Raise producer.max.request.size (max.request.size in a file of client settings), and max.message.bytes "
        "of the topic if that is smaller. production.exception.handler can leave such records out.",
        **{"code": "MSG_SIZE_TOO_LARGE", **facts, "size_bytes": size_bytes, "limit_bytes": limit_bytes},
    )


def removed_from_group(application: str) -> FencedError:
    """Make the error of an application whose member another program has taken out of its group."""
    return FencedError(
        f"another program has removed application {application!r} from its group, as Kafka's "
        "kafka-streams-application-reset --force does; nothing was committed since",
        hint="The application has stopped, so that a reset is whole. Start it again once the other program is done: it "
        "begins from the offsets that are committed then. If nobody did that, a broker may have lost the newest "
        "records of the group, which its log would say.",
        group=application,
    )


def not_in_time(transactional_id: str, size_bytes: int, timeout_ms: int) -> LogUnavailableError:
    """Make the error of a transaction that takes longer than brokers allow."""
    return LogUnavailableError(
        f"transaction {transactional_id!r} of {size_bytes / 1e6:.1f} MB was not written within "
        f"{timeout_ms / 1000:.0f} s, the longest time that the brokers allow",
        hint="The connection to the brokers is too slow for batches of this size: lower "
        "penstock.max.records.per.batch for those to come, and "
        "raise the brokers' transaction.max.timeout.ms and producer.transaction.timeout.ms.",
        transactional_id=transactional_id, size_bytes=size_bytes, timeout_ms=timeout_ms,
    )  # fmt: skip


def persist(
    action: Callable[[], _T],
    doing: str,
    patience_s: float,
    access: ClusterAccess | None = None,
    before_retry: Callable[[], object] | None = None,
    **facts: object,
) -> _T:
    """Do an action, with retries and warnings while it fails temporarily.

    Args:
        action: The action.
        doing: Its description for messages.
        patience_s: The time for retries.
        access: Explains refusals.
        before_retry: Called before each retry.
        facts: Attributes of the error.

    Raises:
        AuthenticationError: The broker rejects the login, or its certificate is not trusted.
        AuthorizationError: The user lacks an ACL.
        LogUnavailableError: It did not succeed within ``patience_s``.
        LogError: It failed for good.
    """
    began = time.monotonic()
    warned, failures = began + _WARN_AFTER_S - _WARN_EVERY_S, 0
    while True:
        try:
            return action()
        except KafkaException as error:
            failures += 1
            now, pause = time.monotonic(), _BACKOFF.pause_s(failures)
            refused = access.refused_since(began) if access is not None else None
            if refused is not None or not may_pass(error) or now - began + pause > patience_for(error, patience_s):
                raise failure(refused or error, doing, access, **facts) from error
            if now - warned >= _WARN_EVERY_S:
                left = patience_s - (now - began)
                _log.warning("%s: %s; trying again for %.0f s", doing, error_of(error).str(), left)
                warned = now
        time.sleep(pause)
        if before_retry is not None:
            before_retry()
