"""The category of each of Kafka's error codes for a client: wait, begin again, skip a record, or give up.

Kafka's own errors (`org.apache.kafka.common.protocol.Errors`, 4.4) have the categories of KIP-890 and KIP-1050. Codes
of librdkafka and of connections are negative.
"""

from __future__ import annotations

from enum import Enum

from confluent_kafka import KafkaError

__all__ = ["CODES", "LOCAL_CODES", "ErrorCategory", "LocalCode"]


class ErrorCategory(Enum):
    """The right reaction to an error."""

    PASSES = "the same request may work later: a broker restarts, a leader moves, a record was damaged on its way"
    SETTLES = "like PASSES for some seconds, until all brokers know a new topic; after that there is no such topic"
    ABORTABLE = "the transaction is lost; a new one may succeed, by a producer that initialises again"
    FENCED = "another producer has initialised this transactional id, or its coordinator has ended a transaction"
    REJOIN = "the group has gone on without this member: it has to join again"
    REFUSED = "the broker does not accept this record; others may be fine"
    DENIED = "the user is unknown or lacks a right"
    FINAL = "neither waiting nor beginning again helps"


def _local(name: str) -> int:
    return int(getattr(KafkaError, f"_{name}"))  # the underscore is part of librdkafka's name


class LocalCode:
    """Error codes of librdkafka itself."""

    ASSIGNMENT_LOST = _local("ASSIGNMENT_LOST")
    AUTHENTICATION = _local("AUTHENTICATION")
    AUTO_OFFSET_RESET = _local("AUTO_OFFSET_RESET")
    FATAL = _local("FATAL")
    FENCED = _local("FENCED")
    MAX_POLL_EXCEEDED = _local("MAX_POLL_EXCEEDED")
    NO_OFFSET = _local("NO_OFFSET")
    PARTITION_EOF = _local("PARTITION_EOF")
    PURGE_INFLIGHT = _local("PURGE_INFLIGHT")
    PURGE_QUEUE = _local("PURGE_QUEUE")
    SSL = _local("SSL")
    STATE = _local("STATE")
    TIMED_OUT = _local("TIMED_OUT")
    TRANSPORT = _local("TRANSPORT")
    UNKNOWN_PARTITION = _local("UNKNOWN_PARTITION")


def _table(**codes: str) -> dict[int, ErrorCategory]:
    categories = {int(code): ErrorCategory[category] for category, text in codes.items() for code in text.split()}
    assert len(categories) == sum(len(text.split()) for text in codes.values()), "a code stands twice"  # noqa: S101
    return categories


CODES = _table(
    # CORRUPT_MESSAGE, the leaders', coordinators' and controllers' comings and goings, time-outs, too few replicas,
    # CONCURRENT_TRANSACTIONS, storage errors, fetch and share sessions, quotas, REBOOTSTRAP_REQUIRED.
    PASSES="2 5 6 7 8 9 13 14 15 16 19 20 41 51 52 56 70 71 72 74 75 77 78 80 83 84 88 89 106 108 122 123 129 133",
    SETTLES="3 100 103",  # UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID
    # UNKNOWN_SERVER_ERROR, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING,
    # UNKNOWN_PRODUCER_ID, TRANSACTION_ABORTABLE
    ABORTABLE="-1 45 48 49 59 120",
    FENCED="47 90",  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
    # ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID,
    # FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH
    REJOIN="22 25 27 79 82 110 113",
    REFUSED="10 18 32 87",  # MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD
    DENIED="29 30 31 33 34 53 54 58 61 62 63 64 65 66",
    FINAL="""
        1 4 11 12 17 21 23 24 26 28 35 36 37 38 39 40 42 43 44 46 50 55 57 60 67 68 69 73 76 81 85 86
        91 92 93 94 95 96 97 98 99 101 102 104 105 107 109 111 112 114 115 116 117 118 119 121 124 125 126
        127 128 130 131 132 134 135 136
    """,
)

_LOCAL = {
    ErrorCategory.PASSES: """
        TRANSPORT TIMED_OUT MSG_TIMED_OUT ALL_BROKERS_DOWN RESOLVE WAIT_COORD WAIT_CACHE TIMED_OUT_QUEUE RETRY
        NOENT DESTROY DESTROY_BROKER
    """,  # NOENT: no leader is known, right after a start of the broker
    ErrorCategory.SETTLES: "UNKNOWN_TOPIC UNKNOWN_PARTITION",
    ErrorCategory.ABORTABLE: "FATAL GAPLESS_GUARANTEE PURGE_INFLIGHT PURGE_QUEUE STATE",
    ErrorCategory.FENCED: "FENCED",
    ErrorCategory.REJOIN: "ASSIGNMENT_LOST MAX_POLL_EXCEEDED",
    ErrorCategory.DENIED: "AUTHENTICATION SSL",
}
LOCAL_CODES = {_local(name): category for category, names in _LOCAL.items() for name in names.split()}
