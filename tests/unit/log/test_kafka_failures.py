"""Which of Kafka's errors pass, which end a transaction, and which are final: every code has its place."""

from __future__ import annotations

import inspect
import re
import time

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka import errors as of_kafka_python

from penstock.cli.main import _explained
from penstock.errors import (
    FencedError,
    LogError,
    LogUnavailableError,
    PenstockError,
    ProductionError,
    UnknownTopicError,
)
from penstock.log.base import TopicPartition
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.error_codes import CODES, LOCAL_CODES, ErrorCategory
from penstock.log.kafka.failures import category_of, failure, may_pass, patience_for, persist
from penstock.log.kafka.refused_access import ClusterAccess
from penstock.log.kafka.wire.produce import NotWrittenError, ProduceLimits, ProduceRequests
from penstock.log.kafka.wire.record_batches import ProducerState

KINDS = (ErrorCategory.PASSES, ErrorCategory.SETTLES)
LAST_CODE = 136  # of Kafka 4.4
# kafka-python takes them for final; Java's client for retriable, as they are.
RETRIABLE_IN_JAVA = {
    2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89, 100, 103, 106,
    122, 123, 133,
}  # fmt: skip


def test_every_code_of_kafka_and_of_the_clients_has_a_kind() -> None:
    of_client = {code for name, code in vars(KafkaError).items() if name.isupper() and isinstance(code, int)}
    assert set(range(1, LAST_CODE + 1)) | {-1} == set(CODES)
    assert {code for code in of_client if code > 0} <= set(CODES)
    assert set(LOCAL_CODES) <= of_client


def test_what_kafkas_clients_try_again_is_tried_again() -> None:
    of_python = {
        each.errno
        for _, each in inspect.getmembers(of_kafka_python, inspect.isclass)
        if getattr(each, "retriable", False) and getattr(each, "errno", 0) > 0
    }
    ours = {code for code, kind in CODES.items() if kind in KINDS}
    assert of_python | RETRIABLE_IN_JAVA <= ours
    # BROKER_NOT_AVAILABLE, TRANSACTION_COORDINATOR_FENCED, STALE_BROKER_EPOCH, NEW_LEADER_ELECTED and
    # REBOOTSTRAP_REQUIRED pass too, though no client says so.
    assert ours - of_python - RETRIABLE_IN_JAVA == {8, 52, 77, 108, 129}


@pytest.mark.parametrize(
    ("code", "kind", "error"),
    [
        (KafkaError.TRANSACTION_ABORTABLE, ErrorCategory.ABORTABLE, LogUnavailableError),
        (KafkaError.INVALID_TXN_STATE, ErrorCategory.ABORTABLE, LogUnavailableError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ErrorCategory.SETTLES, UnknownTopicError),
        (KafkaError.INVALID_MSG, ErrorCategory.PASSES, LogUnavailableError),  # CORRUPT_MESSAGE
        (KafkaError.PRODUCER_FENCED, ErrorCategory.FENCED, FencedError),
        (KafkaError.MSG_SIZE_TOO_LARGE, ErrorCategory.REFUSED, ProductionError),
        (KafkaError.INVALID_RECORD, ErrorCategory.REFUSED, ProductionError),
        (KafkaError.UNSUPPORTED_VERSION, ErrorCategory.FINAL, LogError),
        (KafkaError._TRANSPORT, ErrorCategory.PASSES, LogUnavailableError),
        (KafkaError._UNKNOWN_PARTITION, ErrorCategory.SETTLES, UnknownTopicError),
    ],
)
def test_what_becomes_of_an_error(code: int, kind: ErrorCategory, error: type[Exception]) -> None:
    assert category_of(KafkaError(code)) is kind
    assert type(failure(KafkaError(code), "writing to orders-0")) is error


OF_CLIENTS = [code for name, code in vars(KafkaError).items() if name[0] == "_" and name[1:2].isupper()]


@pytest.mark.parametrize("code", [*CODES, *OF_CLIENTS])
def test_every_error_says_what_to_do(code: int) -> None:
    """And is named as in Kafka's documentation, also where the client library does not know it."""
    error = failure(KafkaError(code), "writing to orders-0")
    assert error.message.startswith("writing to orders-0: ")
    assert error.hint.endswith((".", "?", "topicconfigs")), error.hint
    if ErrorCategory.FINAL is CODES.get(code):
        assert "ERR_" not in error.message
    with pytest.raises(PenstockError) as caught:
        raise _explained(KafkaException(KafkaError(code))) or AssertionError
    assert caught.value.hint


@pytest.mark.parametrize(
    ("code", "wanted", "unwanted"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, "max.message.bytes", "max.request.size"),
        (KafkaError.RECORD_LIST_TOO_LARGE, "segment.bytes", "max.message.bytes"),
        (KafkaError.INVALID_TIMESTAMP, "message.timestamp.after.max.ms", "max.message.bytes"),
        (KafkaError.INVALID_RECORD, "cleanup.policy=compact", "max.message.bytes"),
    ],
)
def test_refused_records_name_the_limit_that_refused_them(code: int, wanted: str, unwanted: str) -> None:
    error = failure(NotWrittenError(code, TopicPartition("orders", 0)), "writing to orders-0")
    assert isinstance(error, ProductionError)
    assert error.message.count("orders-0") == 1
    assert wanted in error.hint
    assert unwanted not in error.hint


def test_a_record_that_this_client_does_not_send_is_not_blamed_on_the_broker() -> None:
    records = pa.RecordBatch.from_pydict({"timestamp": [1], "key": [b"k"], "value": [b"x" * 5_000]})
    with pytest.raises(NotWrittenError) as caught:
        ProduceRequests(
            [(TopicPartition("orders", 0), records)], ProduceLimits(record_bytes=2_000), ProducerState(), {}
        )
    error = failure(caught.value, "writing to orders-0")
    assert "broker" not in str(error).lower()
    assert "larger than this client sends: 2,000 bytes (max.request.size)" in error.message
    assert "producer.max.request.size" in error.hint
    assert error.facts["size_bytes"] > 5_000


def test_a_fatal_error_of_a_producer_leaves_the_next_one_a_chance() -> None:
    fatal = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE, "lost", fatal=True)
    assert category_of(fatal) is ErrorCategory.ABORTABLE
    assert category_of(KafkaError(KafkaError._FATAL, "Producer fenced by newer", fatal=True)) is ErrorCategory.FENCED
    assert category_of(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no", fatal=True)) is ErrorCategory.DENIED


def test_a_topic_that_nobody_knows_is_waited_for_some_seconds_only() -> None:
    unknown, busy = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), KafkaError(KafkaError.NOT_COORDINATOR)
    assert may_pass(unknown)
    assert (patience_for(unknown, 300), patience_for(unknown, 3), patience_for(busy, 300)) == (10, 3, 300)


def test_a_topic_that_appears_was_only_not_known_yet(caplog: pytest.LogCaptureFixture) -> None:
    answers = [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_OR_PART, 0]

    def ask() -> str:
        code = answers.pop(0)
        if code:
            raise KafkaException(KafkaError(code))
        return "found"

    assert persist(ask, "reading orders-0", patience_s=30) == "found"
    assert not caplog.records, "a new topic is no reason for a warning"


def test_who_is_to_end_waits_no_longer_than_it_may() -> None:
    access, asked = ClusterAccess(ClientSettings.of("broker:9092", {})), 0

    def ask() -> None:
        nonlocal asked
        asked += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    access.give_up_at_end(lambda: asked > 1, within_s=0.0)  # it goes on until the application is to end
    with pytest.raises(LogUnavailableError):
        persist(ask, "reading orders-0", 3_000, access)
    assert asked == 2


def test_a_failure_that_lasts_is_said(caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()

    def ask() -> str:
        if time.monotonic() - began < 1 or not caplog.messages:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return "found"

    assert persist(ask, "reading orders-0", patience_s=30) == "found"
    (said,) = caplog.messages
    assert re.match(r"reading orders-0: Broker: Not leader for partition; trying again for 2\d s", said), said
