"""Calls of a restore listener, out of the reports of threads."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.engines.threads.hosting.restore_notes import RestoreNotes
from penstock.engines.threads.hosting.restore_watch import RestoreWatch
from penstock.engines.threads.hosting.thread_state import ThreadState
from penstock.log.base import TopicPartition
from penstock.state.restores.restore_progress import RestoreProgress, StateRestoreListener

PLACE = TopicPartition("app-counts-changelog", 1)


class Calls(StateRestoreListener):
    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def on_restore_start(self, place: TopicPartition, store: str, start: int, end: int) -> None:
        self.made.append(("start", place, store, start, end))

    def on_batch_restored(self, place: TopicPartition, store: str, batch_end: int, count: int) -> None:
        self.made.append(("batch", batch_end, count))

    def on_restore_end(self, place: TopicPartition, store: str, total: int) -> None:
        self.made.append(("end", total))

    def on_restore_suspended(self, place: TopicPartition, store: str, total: int) -> None:
        self.made.append(("suspended", total))


def at(offset: int, restored: int, start: int = 0, end: int = 100) -> RestoreProgress:
    return RestoreProgress("counts", PLACE.topic, PLACE.partition, start, offset, end, restored, 0.1)


def report(*found: RestoreProgress) -> dict[str, ThreadState]:
    notes = RestoreNotes()
    for each in found:
        notes.note(each)
    return {"thread-0": ThreadState("h", 1, 0.0, report={"restores": notes.newest()})}


def test_a_restore_is_followed_from_its_start_to_its_end_and_called_once_each() -> None:
    calls = Calls()
    watch = RestoreWatch(calls)
    watch.look(report(at(0, 0)))
    assert watch.doing() == "restoring counts, partition 1: 0%"
    watch.look(report(at(40, 30)))
    watch.look(report(at(40, 30)))
    assert watch.doing() == "restoring counts, partition 1: 40%"
    watch.look(report(at(100, 80)))
    watch.look(report(at(100, 80)))
    watch.look(report())
    assert calls.made == [
        ("start", PLACE, "counts", 0, 100), ("batch", 40, 30), ("batch", 100, 50), ("end", 80),
    ]  # fmt: skip
    assert watch.doing() == ""


def test_a_restore_between_two_reports_is_told_whole() -> None:
    calls = Calls()
    RestoreWatch(calls).look(report(at(100, 80)))
    assert calls.made == [("start", PLACE, "counts", 0, 100), ("batch", 100, 80), ("end", 80)]


def test_a_task_that_goes_before_the_end_is_suspended() -> None:
    calls = Calls()
    watch = RestoreWatch(calls)
    watch.look(report(at(40, 30)))
    watch.look({})
    assert calls.made[-1] == ("suspended", 30)


def test_the_rest_that_a_loop_restores_is_a_restore_of_its_own() -> None:
    calls = Calls()
    watch = RestoreWatch(calls)
    watch.look(report(at(100, 80)))
    watch.look(report(at(120, 20, 100, 120)))
    assert calls.made[3:] == [("start", PLACE, "counts", 100, 120), ("batch", 120, 20), ("end", 20)]


@pytest.mark.logs_error("the restore listener raised")
def test_what_a_listener_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(StateRestoreListener):
        def on_restore_end(self, place: TopicPartition, store: str, total: int) -> None:
            raise ValueError("mine")

    with caplog.at_level(logging.ERROR, "penstock"):
        RestoreWatch(Broken()).look(report(at(100, 80)))
    assert "the restore listener raised" in caplog.text
