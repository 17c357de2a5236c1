"""The lag of groups, and how it moves between two looks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from recorded import records

from penstock.console.group_watch import GroupWatch
from penstock.console.lag_trend import Trend
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.open import open_log

PLACE = TopicPartition("orders", 0)


@pytest.fixture
def log() -> Iterator[TopicLog]:
    with open_log("memory://group-trend") as found:
        found.create_topic("orders", 1)
        found.append("orders", 0, records([(n, "k", "v") for n in range(1000)]))
        found.commit_offsets("audit", {PLACE: 500})
        yield found
        found.delete_topic("orders")


class Looks:
    """Looks at the groups, ten seconds apart."""

    def __init__(self, log: TopicLog) -> None:
        self.log, self.now = log, 0.0
        self.watch = GroupWatch(lambda: self.now)

    def at(self, committed: int | None = None, seconds: float = 10.0, of: Trend | None = None) -> tuple[int, str]:
        if committed is not None:
            self.log.commit_offsets("audit", {PLACE: committed})
        self.now += seconds
        (row,) = self.watch.rows(self.log, lambda _: of)
        self.row = row
        return row.lag, row.trend.word


def test_the_first_looks_say_nothing_then_the_lag_stands(log: TopicLog) -> None:
    looks = Looks(log)
    assert [looks.at() for _ in range(4)] == [(500, "unknown"), (500, "unknown"), (500, "steady"), (500, "steady")]


def test_a_lag_that_falls_says_when_nothing_will_wait(log: TopicLog) -> None:
    looks = Looks(log)
    words = [looks.at(committed) for committed in (600, 700, 800)]
    assert words[-1] == (200, "falls")
    assert looks.row.caught_up_seconds == pytest.approx(20.0)
    assert looks.row.behind is not None
    assert looks.at(1000) == (0, "falls")
    assert looks.row.behind == 0.0


def test_a_lag_that_grows_has_no_end(log: TopicLog) -> None:
    looks = Looks(log)
    for _ in range(4):
        log.append("orders", 0, records([(0, "k", "v")] * 100))
        found = looks.at()
    assert found == (900, "grows")
    assert looks.row.trend.per_second == pytest.approx(10.0)
    assert looks.row.caught_up_seconds is None


def test_looks_of_many_within_two_seconds_are_one(log: TopicLog) -> None:
    looks = Looks(log)
    looks.at()
    assert looks.at(1000, seconds=1.0) == (500, "unknown")
    assert looks.at(seconds=1.5)[0] == 0


def test_an_application_has_the_trend_of_its_own_history(log: TopicLog) -> None:
    assert Looks(log).at(of=Trend(3.0, "grows")) == (500, "grows")


def test_of_many_groups_each_look_asks_some_and_later_ones_the_others(log: TopicLog) -> None:
    for n in range(6):
        log.commit_offsets(f"group-{n}", {PLACE: 100 * n})
    asked: list[str] = []

    class Slow:
        """A log that takes a second for the offsets of a group."""

        def groups(self) -> list[str]:
            return log.groups()

        def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
            asked.append(group)
            nonlocal now
            now += 1.0
            return log.committed_offsets(group)

    now, ends = 0.0, {PLACE: 1000}
    watch, slow = GroupWatch(lambda: now), cast("TopicLog", Slow())
    looks = [watch.consumers(slow, ends) for _ in range(4)]
    assert [(look.asked, look.total) for look in looks] == [(2, 7), (4, 7), (6, 7), (7, 7)]
    assert looks[-1].lags == {"audit": (1, 500), **{f"group-{n}": (1, 1000 - 100 * n) for n in range(6)}}
    before = len(asked)
    watch.consumers(slow, ends)
    assert len(asked) == before, "they are known for ten seconds"
    now += 10.0
    log.commit_offsets(asked[0], {PLACE: 1000})
    assert watch.consumers(slow, ends).lags[asked[0]] == (1, 0), "the oldest look is the first to be repeated"
    log.delete_group("group-5")
    assert "group-5" not in watch.consumers(slow, ends).lags
