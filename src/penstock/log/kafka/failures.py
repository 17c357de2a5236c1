"""Translation of Kafka's errors into Penstock's, and retries of temporary ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError, KafkaException

from penstock.base.backoff import Backoff
from penstock.base.log_lines import own_logger
from penstock.errors import FencedError, LogError, LogUnavailableError, ProductionError, UnknownTopicError
from penstock.log.base import StreamsMembership, membership_refused
from penstock.log.kafka.error_codes import CODES, LOCAL_CODES, ErrorCategory, LocalCode

if TYPE_CHECKING:
    from penstock.log.kafka.refused_access import ClusterAccess

__all__ = [
    "category_of",
    "error_of",
    "failure",
    "is_fenced",
    "is_transient",
    "may_pass",
    "membership_failure",
    "name_of",
    "not_in_time",
    "patience_for",
    "persist",
    "remedy",
    "removed_from_group",
    "too_large_here",
]

_log = own_logger(__name__)
_T = TypeVar("_T")
_UNREACHABLE = (
    "Is the broker up and reachable? See bootstrap.servers; and security.protocol, if its listener requires TLS or "
    "SASL."
)
_BUSY = "Is the cluster healthy? The broker's log may say more; the same may work later."
_LOST = "A new transaction of a new producer may succeed: begin again. The broker's log may say why this one failed."
_SETTLE_S = 10.0
_BACKOFF = Backoff(0.05, 0.3)  # an election takes seconds; rare retries would add to it
_WARN_AFTER_S = 0.5  # the leader of a new topic is known by then
_WARN_EVERY_S = 5.0
_HANDLER = " production.exception.handler can leave such records out."
_REMEDIES = {
    # Records that brokers refuse.
    10: "The limit is max.message.bytes of the topic (of all topics: message.max.bytes of the brokers). Raise it with "
    "kafka-configs --alter --entity-type topics --entity-name TOPIC --add-config max.message.bytes=..., or send "
    "smaller records." + _HANDLER,
    18: "The limit is segment.bytes of the topic: raise it, or send smaller batches (producer.batch.size)." + _HANDLER,
    32: "The time is too far from the brokers' own: the limits are message.timestamp.before.max.ms and "
    "message.timestamp.after.max.ms of the topic (after: an hour by default). Are the timestamps milliseconds since "
    "1970-01-01 UTC?" + _HANDLER,
    87: "A topic with cleanup.policy=compact takes no records without a key. For other reasons see the broker's log."
    + _HANDLER,
    # Offsets.
    1: "Retention has removed the records, or the topic was created again: move the group's offsets with penstock "
    "groups reset, or set auto.offset.reset.",
    12: "The limit is offset.metadata.max.bytes of the brokers.",
    28: "The limit of a request is message.max.bytes of the brokers: commit the offsets of fewer partitions at once.",
    109: "The records are in remote storage, which this client does not read: read from a later offset.",
    # Topics.
    17: "A topic's name has letters, digits, '.', '_' and '-', at most 249, and is not '.' or '..'.",
    36: "Delete it first, or use another name.",
    37: "A topic has at least one partition, and partitions are only ever added.",
    38: "replication.factor may be as large as the number of brokers, or -1 for the brokers' default.",
    39: "Leave the assignment of replicas to the brokers.",
    40: "See the names and values of topic settings at https://kafka.apache.org/documentation/#topicconfigs",
    44: "It is a rule of the brokers (create.topic.policy.class.name, alter.config.policy.class.name, or the largest "
    "number of partitions of a request): keep to it, or ask the administrator of the cluster.",
    60: "Wait for the end of the reassignment (kafka-reassign-partitions --list), and try again.",
    73: "The brokers have delete.topic.enable=false: an administrator of the cluster can delete the topic.",
    76: "Set compression.type to one that the brokers know: zstd needs Kafka 2.1.",
    # Groups and members.
    22: "The group has assigned its partitions again: poll again.",
    23: "Members of another program are in this group: stop it, or give this one another application.id or group.id.",
    24: "Give a group.id that is not empty.",
    25: "The group continued without this member: it joins again by its next poll. Poll more often than "
    "max.poll.interval.ms.",
    26: "The limits of session.timeout.ms are group.min.session.timeout.ms and group.max.session.timeout.ms of the "
    "brokers.",
    27: "The group is assigning its partitions again: poll again.",
    68: "Stop its members first: penstock groups describe GROUP shows them.",
    69: "penstock groups list shows all groups.",
    81: "The limit is group.max.size of the brokers: run fewer members.",
    82: "Another member has this group.instance.id: each needs its own.",
    86: "Stop the members that read the topic first: penstock groups describe GROUP shows them.",
    111: "Another member has this group.instance.id: stop it, or wait for its session.timeout.ms.",
    112: "Members of this group use other assignors: set partition.assignment.strategy as theirs.",
    128: "The pattern of topics is for the broker's RE2: no look-around, no back-references.",
    # Transactions.
    50: "Set producer.transaction.timeout.ms to no more than the brokers' transaction.max.timeout.ms.",
    105: "The brokers forget transactional ids after transactional.id.expiration.ms: make a new producer.",
    # Versions.
    35: "The brokers are too old for this request (kafka-broker-api-versions lists what they know), or this is the "
    "port of a controller.",
    43: "The topic has the message format of an old Kafka: set log.message.format.version of the brokers to 0.11 or "
    "later.",
    # Identity.
    54: "The brokers have no authorizer: set authorizer.class.name, or leave ACLs out.",
    61: "Delegation tokens need delegation.token.secret.key on all brokers.",
    66: "Get a new delegation token.",
    # librdkafka's own.
    LocalCode.TIMED_OUT: "The broker did not answer in time: is it up, reachable and healthy?",
}
_BY_CATEGORY = {
    ErrorCategory.REJOIN: "The group has assigned its partitions again: poll again.",
    ErrorCategory.DENIED: "See security.protocol, sasl.* and ssl.* in the settings, and the ACLs of this user.",
}
_OTHERWISE = "The broker's log may say why."
_OF_CLIENT = "See the settings of Kafka's clients; with --debug, or the debug setting, the client library says more."
_NAMES = {  # of codes that this librdkafka does not know
    98: "SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE",
    101: "DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED",
    104: "INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    107: "INELIGIBLE_REPLICA",
    109: "OFFSET_MOVED_TO_TIERED_STORAGE",
    134: "GROUP_DELETION_FAILED",
    135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
    136: "CONTROLLER_ID_NOT_REGISTERED",
}


def error_of(error: KafkaException | KafkaError) -> KafkaError:
    """Return the KafkaError inside an exception."""
    return error.args[0] if isinstance(error, KafkaException) else error


def category_of(error: KafkaException | KafkaError) -> ErrorCategory:
    """Return the category of an error; for an unknown code the client library decides."""
    inner = error_of(error)
    code = inner.code()
    category = CODES.get(code) or LOCAL_CODES.get(code)
    if inner.fatal() and "fenced" in inner.str().lower():
        return ErrorCategory.FENCED
    if inner.fatal() and category not in (ErrorCategory.DENIED, ErrorCategory.REFUSED, ErrorCategory.FENCED):
        return ErrorCategory.ABORTABLE  # of one librdkafka producer; the next may succeed
    if category is None:
        return ErrorCategory.PASSES if inner.retriable() else ErrorCategory.FINAL
    return category


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
    tp = getattr(error, "tp", None)  # of a batch refused by the leader
    if tp is not None:
        facts = {"topic": tp.topic, "partition": tp.partition, **facts}
    inner = error_of(error)
    code, name = inner.code(), name_of(inner)
    text = f"{_said(doing, inner)} ({name})"
    facts = {"code": name, **facts}
    if limit_bytes := getattr(error, "limit_bytes", 0):
        return too_large_here(doing, getattr(error, "size_bytes", 0), limit_bytes, **facts)
    if access is not None and (refused := access.explained(inner, doing, **facts)) is not None:
        return refused
    category = category_of(inner)
    if category is ErrorCategory.FENCED:
        return FencedError(
            text,
            hint="Another producer has taken over this transactional id: a newer attempt or instance continues. If "
            "there is none, another program uses the same application.id or transactional.id.",
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


def _said(doing: str, error: KafkaError) -> str:
    """Return what was being done and what was said; errors of our own requests say both already."""
    said: str = error.str()
    return said if said.startswith(doing) else f"{doing}: {said}"


def too_large_here(doing: str, size_bytes: int, limit_bytes: int, **facts: object) -> ProductionError:
    """Make the error of a record that is larger than this client sends; no broker has seen it."""
    size = f" of {size_bytes:,} bytes" if size_bytes else ""
    return ProductionError(
        f"{doing}: a record{size} is larger than this client sends: {limit_bytes:,} bytes (max.request.size)",
        hint="Raise producer.max.request.size (max.request.size in a file of client settings), and max.message.bytes "
        "of the topic if that is smaller. production.exception.handler can leave such records out.",
        **{"code": "MSG_SIZE_TOO_LARGE", **facts, "size_bytes": size_bytes, "limit_bytes": limit_bytes},
    )


def membership_failure(group: str, membership: StreamsMembership, error: KafkaException) -> FencedError:
    """Make the error of a commit that a streams group refuses to a member."""
    inner = error_of(error)
    is_unknown = inner.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID)
    return membership_refused(group, membership, "unknown" if is_unknown else "stale", inner.str())


def removed_from_group(application: str) -> FencedError:
    """Make the error of an application whose member another program has taken out of its group."""
    return FencedError(
        f"another program has removed application {application!r} from its group, as Kafka's "
        "kafka-streams-application-reset --force does; nothing was committed since",
        hint="The application has stopped, so that a reset is whole. Start it again once the other program is done: it "
        "begins from the offsets that are committed then. If nobody did that, a broker may have lost the newest "
        "records of the group, which its log would say; an application that may DESCRIBE the topic __consumer_offsets "
        "sees that, and joins again.",
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
            is_over = now - began + pause > patience_for(error, patience_s) or (access is not None and access.is_over())
            if refused is not None or is_over or not may_pass(error):
                raise failure(refused or error, doing, access, **facts) from error
            if now - warned >= _WARN_EVERY_S:
                left = patience_s - (now - began)
                _log.warning("%s; trying again for %.0f s", _said(doing, error_of(error)), left)
                warned = now
        time.sleep(pause)
        if before_retry is not None:
            before_retry()


def remedy(code: int) -> str:
    """Return what to do after an error of this code."""
    category = CODES.get(code) or LOCAL_CODES.get(code)
    by_category = _BY_CATEGORY.get(category, "") if category is not None else ""
    return _REMEDIES.get(code) or by_category or (_OF_CLIENT if code < 0 else _OTHERWISE)


def name_of(error: KafkaError) -> str:
    """Return the name of an error's code, as Kafka's documentation has it where librdkafka does not."""
    return _NAMES.get(error.code()) or str(error.name())
