"""How often a task may end epochs without getting further."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engines.threads.hosting import crashes
from penstock.engines.threads.hosting.crashes import CrashWatch, is_passing
from penstock.errors import AppFailedError, LogUnavailableError
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.topology.plan.plan import TaskId

ONE, TWO = TaskId(0, 0), TaskId(0, 1)
IN, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


def test_commits_of_others_do_not_count_as_progress() -> None:
    watch = CrashWatch()
    for number in range(1, 5):
        assert watch.note({ONE: [IN]}, {IN: 7, OTHER: number}) == (number, ONE)


def test_an_own_commit_does() -> None:
    watch = CrashWatch()
    for number in range(5):
        assert watch.note({ONE: [IN], TWO: [OTHER]}, {IN: number, OTHER: number}) == (1, ONE)


def test_of_several_the_worst_counts() -> None:
    watch = CrashWatch()
    watch.note({TWO: [OTHER]}, {})
    assert watch.note({ONE: [IN], TWO: [OTHER]}, {}) == (2, TWO)


def test_what_is_long_ago_is_forgotten() -> None:
    now = [0.0]
    watch = CrashWatch(lambda: now[0])
    for _ in range(4):
        assert watch.note({ONE: [IN]}, {IN: 7}) == (1, ONE)
        now[0] += 700


def test_the_end_of_an_epoch_is_counted_while_a_topic_is_deleted_and_not_yet_made_again(tmp_path: Path) -> None:
    with open_log(str(tmp_path / "log.db")) as log:
        assert crashes._behind(log, {ONE: [IN]}, {}) == {}
        log.create_topic("in", 1)
        assert crashes._behind(log, {ONE: [IN]}, {IN: 0}) == {}


def test_the_query_of_a_dataframe_that_ends_again_and_again_is_named_with_its_error() -> None:
    watch, error = CrashWatch(), LogUnavailableError("no broker answers", hint="Is the broker up?")
    for number in range(1, 4):
        assert watch.note_feed("orders", {"dataframe-orders": 7, "0_0": number}, error) == number
    assert watch.note_feed("orders", {"dataframe-orders": 8}, error) == 1  # it has written a batch
    for number in range(2, 4):
        assert watch.note_feed("orders", {"dataframe-orders": 8}, error) == number
    with pytest.raises(
        AppFailedError, match=r"query of DataFrame 'orders' has failed 4 times.* no broker answers"
    ) as last:
        watch.note_feed("orders", {"dataframe-orders": 8}, error)
    assert last.value.hint == "Is the broker up?"
    assert not is_passing(last.value)
