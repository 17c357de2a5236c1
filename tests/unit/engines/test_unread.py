"""The watch over partitions with records that no stream thread reads."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from epoch_support import Driver

from penstock.engines.threads.hosting.crashes import is_passing
from penstock.engines.threads.hosting.epoch_checks import UnreadPatience, UnreadWatch
from penstock.errors import AppFailedError
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log

ROWS = 5


class Watched:
    """An epoch with a thread and two tasks, each with a partition, and the watch over it."""

    def __init__(self, log: EmbeddedLog, patience: UnreadPatience | None = None) -> None:
        self.driver = Driver(1, 2)
        self.driver.hello("thread-0", "a")
        self.watch = UnreadWatch(log, patience or UnreadPatience.of(0, 60_000), lambda: self.driver.now)

    def report(self, **facts: Any) -> None:
        self.driver.done("thread-0", **facts)

    def look(self, times: int, **facts: Any) -> None:
        for _ in range(times):
            self.report(**facts)
            self.driver.look(5.0)
            self.report(**facts)
            self.watch.look(self.driver.epoch)


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        opened.create_topic("in", 2)
        opened.append("in", 1, pa.RecordBatch.from_pydict({"value": [b"x"] * ROWS}))
        yield opened


READ = {"in-0": 0, "in-1": ROWS}
UNREAD: dict[str, dict[str, Any]] = {
    "no thread has it": {"positions": {"in-0": 0}, "ends": {"in-0": 0}},
    "its thread does not know its end": {"positions": {"in-0": 0, "in-1": 2}, "ends": {"in-0": 0}},
    "its thread knows an old end": {"positions": {"in-0": 0, "in-1": 2}, "ends": {"in-0": 0, "in-1": 2}},
    "its task waits": {"positions": {"in-0": 0, "in-1": 2}, "ends": READ},
}


@pytest.mark.parametrize("facts", UNREAD.values(), ids=UNREAD)
def test_a_partition_that_is_not_read_is_a_warning_then_a_new_epoch_then_an_error(
    log: EmbeddedLog, facts: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(log)
    with caplog.at_level(logging.WARNING, "penstock"):
        watched.look(2, **facts)
        assert "no stream thread has read" not in caplog.text
        watched.look(2, **facts)
    at = facts["positions"].get("in-1", 0)
    assert caplog.text.count(f"in-1 from offset {at} on: there are records, and no stream thread has read them") == 1
    with pytest.raises(AppFailedError, match=f"in-1 from offset {at} on.* the tasks are planned again") as caught:
        watched.look(4, **facts)
    assert is_passing(caught.value)
    watched.look(4, **facts)
    with pytest.raises(AppFailedError, match=r"in-1 from offset .* even after the tasks were planned again") as caught:
        watched.look(4, **facts)
    assert not is_passing(caught.value)
    assert caught.value.facts["partitions"] == ["in-1"]


def test_a_partition_that_is_read_again_counts_anew(log: EmbeddedLog, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(log)
    waits = UNREAD["its task waits"]
    with caplog.at_level(logging.WARNING, "penstock"):
        for position in (1, 2, 3, 4):
            watched.look(2, positions={"in-0": 0, "in-1": position}, ends=READ)
        watched.look(9, positions=READ, ends=READ)
        watched.look(2, **waits)
    assert "no stream thread" not in caplog.text


def test_threads_in_a_long_step_or_without_a_report_are_left_alone(log: EmbeddedLog) -> None:
    watched = Watched(log)
    waits = UNREAD["its task waits"]
    watched.look(20, **waits, doing={"step": "process", "task": "0_1", "seconds": 9.5})
    for _ in range(20):
        watched.report(**waits)
        watched.driver.look(5.0)
        watched.watch.look(watched.driver.epoch)  # the report is 5 s old: the thread may have gone on


def test_a_step_that_is_short_is_no_excuse(log: EmbeddedLog) -> None:
    """A thread that works for others of its tasks is in some step at nearly each report."""
    watched = Watched(log)
    with pytest.raises(AppFailedError, match="in-1 from offset 2"):
        watched.look(20, **UNREAD["its task waits"], doing={"step": "process", "task": "0_0", "seconds": 0.1})


def test_a_task_may_wait_for_as_long_as_max_task_idle_ms(log: EmbeddedLog) -> None:
    watched = Watched(log, UnreadPatience.of(40_000, 300_000))
    watched.look(14, **UNREAD["its task waits"])
    with pytest.raises(AppFailedError, match="planned again"):
        watched.look(2, **UNREAD["its task waits"])


def test_a_log_that_does_not_answer_is_no_fault_of_threads(log: EmbeddedLog) -> None:
    watched = Watched(log)
    log.delete_topic("in")
    watched.look(20, **UNREAD["its task waits"])


def test_a_log_that_hangs_holds_nobody_up(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a broker that takes requests and does not answer them."""
    asked, answers, end_offsets = [], threading.Event(), log.end_offsets

    def hanging(topics: Any) -> Any:
        asked.append(threading.current_thread())
        assert answers.wait(60)
        return end_offsets(topics)

    monkeypatch.setattr(log, "end_offsets", hanging)
    watched = Watched(log, replace(UnreadPatience.of(0, 60_000), answer_s=0.01))
    watched.look(20, **UNREAD["its task waits"])  # long enough for an error, if the ends were known
    assert len(asked) == 1  # one look waits for its answer, and no other is begun
    answers.set()
    asked[0].join(60)
    watched.watch._patience = UnreadPatience.of(0, 60_000)
    with pytest.raises(AppFailedError, match="planned again"):
        watched.look(20, **UNREAD["its task waits"])


@pytest.mark.parametrize("facts", [each for name, each in UNREAD.items() if "no thread" not in name])
def test_the_long_turn_of_a_thread_with_many_tasks_is_no_fault(
    log: EmbeddedLog, facts: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Each of its steps is short, and its positions are those before the turn."""
    watched = Watched(log)
    busy = {"doing": {"step": "process", "task": "0_0", "seconds": 0.4}}
    with caplog.at_level(logging.WARNING, "penstock"):
        watched.look(20, **facts, **busy, notes=1)
        watched.look(20, positions={"in-0": 0, "in-1": 4}, ends=facts["ends"], **busy, notes=2)
    assert "no stream thread" not in caplog.text


def test_a_partition_that_stays_unread_over_long_turns_is_noticed(log: EmbeddedLog) -> None:
    watched = Watched(log)
    waits = UNREAD["its task waits"]

    def turns(numbers: range) -> None:
        for number in numbers:
            watched.look(3, **waits, notes=number)

    turns(range(1, 7))
    with pytest.raises(AppFailedError, match=r"in-1 from offset 2 on.* the tasks are planned again"):
        turns(range(7, 10))
