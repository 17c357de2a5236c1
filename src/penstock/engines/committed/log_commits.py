"""The newest commit of an application in continuous mode: the offsets of its group, and the ends of its changelogs.

The offsets are fetched before the ends, so a store that holds its changelog up to the end includes all input below the
offsets. Kafka makes a transaction visible partition by partition, though: for some milliseconds the group's offsets may
be there before the changelog's records are. So over Kafka an offset counts once two looks have found it.

A store behind a repartition topic includes an input record once that topic has been read up to where it ended when the
record had been processed. Its position is found by rounds: the committed offsets are noted with the ends of the
repartition topics, and when those ends have been consumed, as often as there are topics in a row, all stores include
the noted offsets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.errors import LogUnavailableError
from penstock.log.base import TopicPartition
from penstock.log.url import kafka_servers
from penstock.query.position import Position

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import TopicLog

__all__ = ["LogCommit", "LogCommits", "position_at"]

_log = own_logger(__name__)
_REFRESH_S = 0.1
_SETTLE_S = 0.02
_AFTER_FAILURE_S = 5.0

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class LogCommit:
    """The commits of an application that a look into its log has found.

    Attributes:
        number: The number of the look; a later one has a larger number.
        seen_ms: The time of the look.
        offsets: The group's offsets.
        included: Those whose changelog records are visible too.
        changelog_ends: The ends of the changelogs' and global topics' committed records.
        topic_ids: The ids of those topics.
        settled: Offsets of input topics that every store includes.
    """

    number: int
    seen_ms: int
    offsets: Offsets
    included: Offsets
    changelog_ends: Offsets
    topic_ids: Mapping[str, str]
    settled: Offsets = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """-1, as there are no batches."""
        return -1

    @property
    def committed_ms(self) -> int:
        """The time at which nothing newer was committed."""
        return self.seen_ms

    @cached_property
    def ends(self) -> dict[str, dict[int, int]]:
        """The offset after the last record of the input that every store includes, by topic and partition."""
        ends_by_topic: dict[str, dict[int, int]] = {}
        for tp, offset in self.settled.items():
            ends_by_topic.setdefault(tp.topic, {})[tp.partition] = offset
        return ends_by_topic

    @cached_property
    def position(self) -> Position:
        """The last record of each input partition that every store includes."""
        return position_at(self.settled)


def position_at(offsets: Offsets) -> Position:
    """Return the position of a state that includes all records below these offsets.

    >>> position_at({TopicPartition("in", 0): 3, TopicPartition("in", 1): 0}).to_json()
    {'in': {'0': 2}}
    """
    last_offsets: dict[str, dict[int, int]] = {}
    for tp, offset in offsets.items():
        if offset > 0:
            last_offsets.setdefault(tp.topic, {})[tp.partition] = offset - 1
    return Position(last_offsets)


class LogCommits:
    """The commits of an application, looked up in its log; thread-safe.

    Args:
        app: The application.
        log: Its log.
        refresh_s: The longest age of a cached answer.
    """

    def __init__(self, app: ThreadApp, log: TopicLog, refresh_s: float | None = None) -> None:
        self._app = app
        self._log = log
        self._refresh_s = _REFRESH_S if refresh_s is None else refresh_s
        numbers = [app.numbers_topic] if app.numbers_topic else []
        self._topics = list(dict.fromkeys([*app.changelogs.values(), *numbers, *app.plan.global_topics]))
        self._is_atomic = kafka_servers(log.url) is None
        self._rounds = _Rounds(app)
        self._lock = threading.Lock()
        self._newest: LogCommit | None = None
        self._looks = 0
        self._due = float("-inf")

    def newest(self) -> LogCommit:
        """Return the newest commit.

        Raises:
            LogUnavailableError: The log does not answer, and never has.
        """
        asked = time.monotonic()
        with self._lock:
            if self._newest is None or self._due <= asked:  # callers that have waited for this look share it
                try:
                    self._newest = self._look(self._newest)
                    self._due = time.monotonic() + self._refresh_s
                except LogUnavailableError as error:
                    if self._newest is None:
                        raise
                    _log.info("Queries continue with the state as it was: %s", error)
                    self._due = time.monotonic() + _AFTER_FAILURE_S
            return self._newest

    def _look(self, before: LogCommit | None) -> LogCommit:
        if before is None and not self._is_atomic:
            before = self._looked({})
            time.sleep(_SETTLE_S)
        return self._looked({} if before is None else before.offsets)

    def _looked(self, before: Offsets) -> LogCommit:
        self._looks += 1
        seen_ms = unix_ms()
        offsets = self._log.committed_offsets(self._app.application_id)
        repartition = self._app.repartition_topics
        ends = self._log.end_offsets([*self._topics, *repartition])
        included = {
            tp: offset if self._is_atomic or before.get(tp) == offset else before[tp]
            for tp, offset in offsets.items()
            if self._is_atomic or tp in before
        }
        between = {tp: end for tp, end in ends.items() if tp.topic in repartition}
        settled = self._rounds.settled(included, between)
        ids = self._log.topic_ids(self._topics)
        return LogCommit(self._looks, seen_ms, offsets, included, ends, ids, settled)


class _Rounds:
    """The rounds after which every store includes the input that was committed at their beginning.

    Args:
        app: The application.
    """

    def __init__(self, app: ThreadApp) -> None:
        self._inputs = frozenset(app.plan.external_topics)
        self._rounds = max(0, app.plan.levels - 1) if app.repartition_topics else 0
        self._left = 0
        self._noted: Offsets = {}
        self._goal: Offsets | None = None
        self._settled: Offsets = {}

    def settled(self, included: Offsets, between: Offsets) -> Offsets:
        """Return offsets of input topics that every store includes.

        Args:
            included: The committed offsets.
            between: The ends of the repartition topics, looked up after these.
        """
        inputs = {tp: offset for tp, offset in included.items() if tp.topic in self._inputs}
        if not self._rounds or all(included.get(tp, 0) >= end for tp, end in between.items()):
            self._goal, self._settled = None, inputs
            return inputs
        if self._goal is not None and all(included.get(tp, 0) >= end for tp, end in self._goal.items()):
            self._left -= 1
            self._goal = between if self._left else None
            if not self._left:
                self._settled = self._noted
        if self._goal is None:
            self._noted, self._goal, self._left = inputs, between, self._rounds
        return self._settled
