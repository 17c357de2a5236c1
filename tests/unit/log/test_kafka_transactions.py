"""What becomes of a transaction when coordinators and leaders answer with errors: written again, longer, or given up."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.errors import (
    FencedError,
    LogError,
    LogUnavailableError,
    PenstockError,
    ProductionError,
    UnknownTopicError,
)
from penstock.log.base import TopicPartition
from penstock.log.kafka.client_settings import TransactionTimeouts
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.transactions import failed_transactions, transaction
from penstock.log.kafka.wire import transactions
from penstock.log.kafka.wire.connection import failed

LIMIT_MS = 60_000


class Broker:
    """A cluster of one broker, as the protocol's requests see it: errors are scripted, transactions checked.

    Args:
        errors: Name of a request -> error codes of its next answers; 0: it succeeds.
        on: Called before the answer to a request of this name.
    """

    transaction_version = 2  # Kafka 4's

    def __init__(self, errors: dict[str, list[int]], on: dict[str, Callable[[], None]] | None = None) -> None:
        self.errors = {name: deque(codes) for name, codes in errors.items()}
        self.on = on or {}
        self.timeouts: list[int] = []
        self.asked: list[str] = []
        self.committed = 0
        self._epochs = itertools.count()
        self._answers: dict[int, Any] = {}
        self._numbers = itertools.count()

    @contextmanager
    def coordinating(self, key: str, kind: str) -> Iterator[Broker]:
        yield self

    def leader(self, place: TopicPartition) -> Broker:
        return self

    def forget(self) -> None: ...

    def close(self) -> None: ...

    def ask(self, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        if name == "ApiVersions":
            level = SimpleNamespace(name="transaction.version", max_version_level=self.transaction_version)
            return SimpleNamespace(error_code=0, finalized_features=[level])
        self.asked.append(name)
        if name in self.on:
            self.on[name]()
        waiting = self.errors.get(name)
        code = waiting.popleft() if waiting else 0
        if code < 0:
            raise failed(code, "scripted")
        answers = {"InitProducerId": self._initialised, "AddPartitionsToTxn": self._added, "Produce": self._produced}
        return answers.get(name, self._ended)(request, code)

    def send(self, request: Any) -> int:
        number = next(self._numbers)
        self._answers[number] = self.ask(request)
        return number

    def receive(self, number: int) -> Any:
        return self._answers.pop(number)

    def _initialised(self, request: Any, code: int) -> Any:
        if not code and request.transaction_timeout_ms > LIMIT_MS:
            code = KafkaError.INVALID_TRANSACTION_TIMEOUT
        if not code:
            self.timeouts.append(request.transaction_timeout_ms)
        return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=next(self._epochs))

    def _added(self, request: Any, code: int) -> Any:
        result = SimpleNamespace(partition_error_code=code, partition_index=0)
        return SimpleNamespace(results_by_topic_v3_and_below=[SimpleNamespace(name="t", results_by_partition=[result])])

    def _produced(self, request: Any, code: int) -> Any:
        response = SimpleNamespace(index=0, error_code=code, base_offset=0)
        return SimpleNamespace(responses=[SimpleNamespace(name="t", partition_responses=[response])])

    def _ended(self, request: Any, code: int) -> Any:
        self.committed += request.committed and not code
        return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=next(self._epochs))


class Times:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> Callable[[], None]:
        def act() -> None:
            self.now += seconds

        return act


@pytest.fixture(params=[2, 1], ids=["Kafka 4", "older"])
def times(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Times:
    monkeypatch.setattr(Broker, "transaction_version", request.param)
    made = Times()
    fake = SimpleNamespace(monotonic=made, sleep=lambda seconds: made.pass_s(seconds)(), time_ns=lambda: 0)
    for module in (transaction, failed_transactions, transactions):
        monkeypatch.setattr(module, "time", fake)
    return made


def write(broker: Broker, size: int = 10, **settings: Any) -> None:
    log = KafkaLog("nowhere:1", {"task.timeout.ms": 30_000, **settings})
    log.clients._cluster = broker  # type: ignore[assignment] # the seam of the protocol
    with log.transaction("app-0_0") as begun:
        begun.append("t", 0, pa.RecordBatch.from_pydict({"value": pa.array([b"x" * size], pa.large_binary())}))


def test_a_transaction_that_takes_too_long_is_written_again_with_more_time(times: Times) -> None:
    slow = [times.pass_s(40), times.pass_s(40)]
    broker = Broker(
        {"Produce": [KafkaError.INVALID_PRODUCER_EPOCH]}, {"Produce": lambda: slow.pop()() if slow else None}
    )
    write(broker)
    assert broker.timeouts == [30_000, 60_000]
    assert broker.committed == 1


@pytest.mark.parametrize("code", [KafkaError.PRODUCER_FENCED, KafkaError.INVALID_TXN_STATE])
def test_the_end_of_a_transaction_may_be_what_comes_too_late(times: Times, code: int) -> None:
    broker = Broker({"EndTxn": [code]}, {"Produce": times.pass_s(35)})
    write(broker)
    assert (broker.timeouts, broker.committed) == ([30_000, 60_000], 1)


def test_a_large_transaction_has_the_time_that_it_needs_from_the_start(times: Times) -> None:
    broker = Broker({})
    write(broker, 9_000_000, **{"producer.max.request.size": 20_000_000})
    assert broker.timeouts == [60_000]


def test_a_connection_too_slow_for_the_longest_time_is_told_as_that(times: Times) -> None:
    broker = Broker({"Produce": [KafkaError.INVALID_PRODUCER_EPOCH] * 9}, {"Produce": times.pass_s(1_000)})
    with pytest.raises(LogUnavailableError, match=r"not written within 60 s, the longest time that the brokers allow"):
        write(broker)
    assert broker.timeouts == [30_000, 60_000, 60_000]  # 120 s were refused: transaction.max.timeout.ms


def test_a_least_time_beyond_what_brokers_allow_is_an_error_of_the_setting(times: Times) -> None:
    with pytest.raises(LogError) as caught:
        write(Broker({}), **{"producer.transaction.timeout.ms": 90_000})
    assert "transaction.max.timeout.ms" in caught.value.hint


def test_to_be_fenced_before_that_time_is_no_time_out_and_final(times: Times) -> None:
    broker = Broker({"Produce": [KafkaError.PRODUCER_FENCED] * 99}, {"Produce": times.pass_s(1)})
    with pytest.raises(FencedError):
        write(broker)
    assert broker.timeouts == [30_000]  # it is not initialised again, which would fence the newer producer


@pytest.mark.parametrize(
    ("request_name", "code"),
    [
        ("Produce", KafkaError.TRANSACTION_ABORTABLE),
        ("EndTxn", KafkaError.TRANSACTION_ABORTABLE),
        ("AddPartitionsToTxn", KafkaError.TRANSACTION_ABORTABLE),
        ("Produce", KafkaError.INVALID_MSG),  # CORRUPT_MESSAGE: the record is fine
        ("Produce", KafkaError.UNKNOWN_TOPIC_OR_PART),
        ("AddPartitionsToTxn", KafkaError.UNKNOWN_TOPIC_OR_PART),
        ("Produce", KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("InitProducerId", KafkaError.UNKNOWN),
        ("Produce", KafkaError._TRANSPORT),
    ],
)
def test_what_a_new_producer_may_do_better_is_left_to_it(times: Times, request_name: str, code: int) -> None:
    broker = Broker({request_name: [code, code]})
    write(broker)
    assert broker.committed == 1
    is_asked = request_name != "AddPartitionsToTxn" or broker.transaction_version < 2
    assert broker.asked.count("InitProducerId") == (3 if is_asked else 1)


@pytest.mark.parametrize(
    ("code", "error", "seconds"),
    [
        (KafkaError.TRANSACTION_ABORTABLE, LogUnavailableError, 30),
        (KafkaError.INVALID_MSG, LogUnavailableError, 30),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopicError, 10),
    ],
)
def test_what_does_not_pass_ends_with_an_error_that_says_so(
    times: Times, code: int, error: type[Exception], seconds: float
) -> None:
    broker = Broker({"Produce": [code] * 999})
    with pytest.raises(error) as caught:
        write(broker)
    assert not isinstance(caught.value, FencedError | ProductionError)
    assert seconds <= times.now < seconds + 5
    assert broker.committed == 0


def test_a_transaction_that_is_given_up_is_ended_by_the_producer_that_began_it(times: Times) -> None:
    """Another one of its id would fence whoever writes under it by now."""
    broker = Broker({"EndTxn": [KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]})
    with pytest.raises(PenstockError) as caught:
        write(broker)
    assert not isinstance(caught.value, FencedError)
    adding = ["AddPartitionsToTxn"] if broker.transaction_version < 2 else []
    assert broker.asked == ["InitProducerId", *adding, "Produce", "EndTxn", "EndTxn"]
    assert broker.committed == 0


def test_a_failure_after_a_long_attempt_has_another_attempt(times: Times) -> None:
    broker = Broker({"EndTxn": [KafkaError._TRANSPORT]}, {"Produce": times.pass_s(29)})
    write(broker, **{"task.timeout.ms": 5_000})
    assert broker.committed == 1


def test_attempts_know_what_is_usual(times: Times) -> None:
    fenced, away = (KafkaException(KafkaError(code)) for code in (KafkaError.PRODUCER_FENCED, KafkaError._TRANSPORT))
    attempts_made = failed_transactions.TransactionAttempts(patience_s=5)
    assert attempts_made.allow_retry(fenced)
    assert attempts_made.is_ordinary
    assert attempts_made.pause_s() == 0
    assert attempts_made.allow_retry(away)
    assert not attempts_made.is_ordinary
    assert attempts_made.pause_s() > 0
    times.now += 6
    assert not attempts_made.allow_retry(away)


def test_time_outs_grow_in_steps() -> None:
    timeouts = TransactionTimeouts(30_000, 100_000)
    assert timeouts.needed(0) == 30_000
    assert timeouts.needed(10_000_000) == 60_000
    assert timeouts.needed(1 << 40) == 100_000
    assert timeouts.longer(60_000) == 100_000
    assert timeouts.longer(100_000) is None
    assert timeouts.refused(100_000)
    assert timeouts.allowed(100_000) == 50_000
    assert not timeouts.refused(30_000)
