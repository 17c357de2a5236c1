"""When a producer asks whether its last transaction is marked."""

from __future__ import annotations

import pytest

from penstock.log.kafka.wire import transactions
from penstock.log.kafka.wire.transactions import MarkerWatch


@pytest.fixture(autouse=True)
def _no_transaction_is_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take a while from one line to the next."""
    monkeypatch.setattr(transactions, "_MARKED_S", 3_600.0)


def asked(watch: MarkerWatch, transactions: int, *, is_marked: bool = True, seconds: float = 0.002) -> int:
    """How often it asks in so many transactions, and gets this answer."""
    found = 0
    for _ in range(transactions):
        watch.ended()
        if watch.is_worth_asking():
            found += 1
            watch.answered(is_marked=is_marked)
        watch.written(seconds)
    return found


def test_it_asks_until_the_answers_are_known_and_then_now_and_then() -> None:
    watch = MarkerWatch()
    assert asked(watch, 100) == 100
    assert asked(watch, 500) == 10


def test_it_asks_again_after_an_answer_that_the_markers_are_on_their_way() -> None:
    watch = MarkerWatch()
    asked(watch, 600)
    assert asked(watch, 200, is_marked=False) > 150
    assert asked(watch, 100) == 100


def test_it_asks_again_when_writes_are_often_as_slow_as_a_retry_of_the_broker() -> None:
    watch = MarkerWatch()
    asked(watch, 600)
    assert asked(watch, 50, seconds=0.03) > 40
    asked(watch, 600)
    assert sum(asked(watch, 1, seconds=0.03) + asked(watch, 49) for _ in range(10)) <= 11, "one slow write says little"


def test_it_asks_nothing_long_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = MarkerWatch()
    watch.ended()
    assert watch.is_recent
    monkeypatch.setattr(transactions, "_MARKED_S", -1.0)
    assert not watch.is_recent
    assert not watch.is_worth_asking()
