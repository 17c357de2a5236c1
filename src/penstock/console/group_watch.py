"""The groups of a log with their lag, how old it is, and how it moves, for all who look at them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.clock import unix_ms
from penstock.console.lag_trend import Trend, trend_of
from penstock.log.base import TopicPartition
from penstock.log.groups.group_admin import GroupAdmin, GroupLag, GroupSummary, seconds_behind

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["Consumers", "GroupRow", "GroupWatch", "waiting_of"]

_MOST_GROUPS = 200
_LOOK_S = 2.0  # looks of several browsers are one
_AGES_S = 5.0
_AGES_BUDGET_S = 1.0  # for reading the oldest waiting records of all groups
_KEPT_S = 600.0
_OFFSETS_S = 10.0  # for so long they are not asked again
_OFFSETS_BUDGET_S = 2.0
_SAMPLES = 300


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as the list shows it.

    Attributes:
        summary: Its name, state and members.
        lag: Records that wait in all partitions.
        partitions: The number of partitions that it has offsets of.
        behind: The age in seconds of the oldest record that waits; None while unknown.
        trend: How the lag moves.
    """

    summary: GroupSummary
    lag: int
    partitions: int
    behind: float | None
    trend: Trend

    @property
    def caught_up_seconds(self) -> float | None:
        """The time until nothing waits, at the present trend; None if the lag does not fall."""
        return self.trend.until_none(self.lag)


@dataclass(frozen=True, slots=True)
class Consumers:
    """The groups that have committed offsets of a topic.

    Attributes:
        lags: Group -> partitions of the topic that it has offsets of, and records that wait in them.
        asked: The number of groups that were asked.
        total: The number of all groups.
    """

    lags: dict[str, tuple[int, int]]
    asked: int
    total: int


@dataclass(slots=True)
class _Known:
    samples: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    behind: float | None = None
    looked: float = float("-inf")


class GroupWatch:
    """The looks at groups while somebody asks, and their lag of the last ten minutes.

    The lag of an application's own group is in its history, and is known at the first look; that of other groups moves
    only between two looks, so the trend of the first one is unknown.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._histories: dict[str, _Known] = {}
        self._rows: list[GroupRow] = []
        self._looked = float("-inf")
        self._within = ""
        self.total = 0  # of the newest look
        self._offsets: dict[str, tuple[float, dict[TopicPartition, int]]] = {}  # group -> when it was asked, offsets
        self._lock = threading.Lock()
        self._asking = threading.Lock()

    def consumers(self, log: TopicLog, ends: Mapping[TopicPartition, int]) -> Consumers:
        """Return the groups that read a topic, by offsets that are at most some seconds old.

        Of many groups each look asks only as many as it has time for, those first that were asked the longest ago; the
        next one goes on with the others.

        Args:
            log: The log.
            ends: The ends of the topic's partitions.
        """
        with self._asking:
            names = log.groups()
            looked_up = {name: self._offsets[name] for name in names if name in self._offsets}
            began = self._clock()
            for name in sorted(names, key=lambda name: looked_up[name][0] if name in looked_up else float("-inf")):
                if name in looked_up and began - looked_up[name][0] < _OFFSETS_S:
                    break  # as all that follow
                if self._clock() - began >= _OFFSETS_BUDGET_S:
                    break
                looked_up[name] = self._clock(), log.committed_offsets(name)
            self._offsets = looked_up
        lags = {}
        for name, (_, offsets) in looked_up.items():
            waiting = [max(0, ends[tp] - offset) for tp, offset in offsets.items() if tp in ends]
            if waiting:
                lags[name] = len(waiting), sum(waiting)
        return Consumers(lags, len(looked_up), len(names))

    def rows(self, log: TopicLog, application_trend: Callable[[str], Trend | None], within: str = "") -> list[GroupRow]:
        """Return the first 200 groups, as of the last two seconds.

        Args:
            log: The log.
            application_trend: Returns the trend of an application's lag; None: it has no history.
            within: A text that their names have; empty: any.
        """
        with self._lock:
            now = self._clock()
            if within != self._within or now - self._looked >= _LOOK_S:
                self._rows, self._within = self._look(log, application_trend, now, within), within
                self._looked = self._clock()
            return list(self._rows)

    def note(self, group: str, lag: int) -> Trend:
        """Note the lag of a group that somebody looks at; return how it moves."""
        with self._lock:
            return self._noted(group, lag, self._clock())

    def _noted(self, group: str, lag: int, now: float) -> Trend:
        history = self._histories.setdefault(group, _Known())
        if not history.samples or now - history.samples[-1][0] >= _LOOK_S / 2:
            history.samples.append((now, lag))
        while history.samples[0][0] < now - _KEPT_S:
            history.samples.popleft()
        return trend_of(list(history.samples))

    def _look(
        self, log: TopicLog, application_trend: Callable[[str], Trend | None], now: float, within: str
    ) -> list[GroupRow]:
        admin = GroupAdmin(log)
        all_groups = admin.groups()
        names, self.total = {each.group for each in all_groups}, len(all_groups)
        summaries = [each for each in all_groups if within.lower() in each.group.lower()][:_MOST_GROUPS]
        self._histories = {name: history for name, history in self._histories.items() if name in names}
        deadline, rows = now + _AGES_BUDGET_S, []
        for each in summaries:
            lags = admin.lag(each.group)
            total = sum(row.lag for row in lags)
            seen = self._noted(each.group, total, now)
            behind = self._behind(log, self._histories[each.group], lags, deadline)
            rows.append(GroupRow(each, total, len(lags), behind, application_trend(each.group) or seen))
        return rows

    def _behind(self, log: TopicLog, history: _Known, lags: Sequence[GroupLag], deadline: float) -> float | None:
        waiting = waiting_of(log, lags)
        if not waiting:
            return 0.0
        now = self._clock()
        if now - history.looked >= _AGES_S and now < deadline:
            history.looked = now
            history.behind = max(seconds_behind(log, waiting, unix_ms()).values(), default=None)
        return history.behind


def waiting_of(log: TopicLog, lags: Sequence[GroupLag]) -> dict[TopicPartition, int]:
    """Return the partitions with lag, and the offset of the next record of each."""
    return {
        TopicPartition(row.topic, row.partition): row.committed or log.beginning_offset(row.topic, row.partition)
        for row in lags
        if row.lag
    }
