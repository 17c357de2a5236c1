"""Offsets of the source: as JSON in Spark's checkpoint, and how far a batch may go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.log.base import TopicPartition
from penstock.spark.timeline import Timeline, oldest_first

__all__ = ["Offsets", "SourceOffset", "admit"]

Offsets = Mapping[TopicPartition, int]
TimelineOf = Callable[[TopicPartition, int, int, int], Timeline]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """Where a batch ends, as Spark notes it before the batch runs.

    Attributes:
        ends: Of each partition, the offset behind the batch.
        tick: Of the clock.
        starts: Where this batch begins, of partitions for which that is not the end of the batch before: new ones,
            those that were moved while the application was stopped, those that retention has overtaken. It is noted, so
            that a batch that runs again reads the same.
        lost: Of the latter, how many offsets retention has taken.
        moves: How many changes of the group's offsets have been taken up (see `moves`).

    Example:
        >>> a = TopicPartition("orders", 0)
        >>> SourceOffset({a: 17}).to_json()
        {'topics': {'orders': {'0': 17}}, 'tick': 0}
        >>> SourceOffset.of(SourceOffset({a: 17}, starts={a: 3}, moves=2).to_json()).starts == {a: 3}
        True
    """

    ends: Offsets = field(default_factory=dict)
    tick: int = 0
    starts: Offsets = field(default_factory=dict)
    lost: Offsets = field(default_factory=dict)
    moves: int = 0

    def to_json(self) -> dict[str, Any]:
        """As a JSON document; what is empty is left out."""
        document: dict[str, Any] = {"topics": _nested(self.ends), "tick": self.tick}
        document |= {name: _nested(at) for name, at in (("starts", self.starts), ("lost", self.lost)) if at}
        return document | ({"moves": self.moves} if self.moves else {})

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SourceOffset:
        """From such a document."""
        topics, starts, lost = (_flat(document.get(name, {})) for name in ("topics", "starts", "lost"))
        return cls(topics, document["tick"], starts, lost, document.get("moves", 0))


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return topics


def _flat(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(t, int(p)): offset for t, parts in topics.items() for p, offset in parts.items()}


def admit(
    start: Offsets, end: Offsets, most: int, most_per_partition: int, timeline: TimelineOf | None = None
) -> dict[TopicPartition, int]:
    """How far a batch goes: at most so many records, shared out in proportion to what waits at each partition number.

    Where several topics wait at one number, they belong to tasks that take the older record first. So their share goes
    to the oldest records, or a stream would run ahead of the table that it joins.

    Args:
        start: Where the batch starts; a partition that is not there starts at 0.
        end: Where the log ends.
        most: The most records of the batch.
        most_per_partition: The most records of one partition.
        timeline: Gives for a partition, its start, its end and a number of records what waits there by time. None: all
            partitions get their share, whatever the times.

    Example:
        >>> a, b = TopicPartition("t", 0), TopicPartition("t", 1)
        >>> admit({a: 0, b: 0}, {a: 300, b: 100}, 200, 1000) == {a: 150, b: 50}
        True
    """
    waiting = {tp: min(stop - start.get(tp, 0), most_per_partition) for tp, stop in end.items()}
    waiting = {tp: n for tp, n in waiting.items() if n > 0}
    total = sum(waiting.values())
    whole = total <= most and all(start.get(tp, 0) + n == end[tp] for tp, n in waiting.items())
    share = 1.0 if total <= most else most / total
    taken = {tp: n if share == 1.0 else max(1, int(n * share)) for tp, n in waiting.items()}
    if not whole and timeline is not None:
        for number in {tp.partition for tp in waiting}:
            together = [tp for tp in waiting if tp.partition == number]
            if len(together) > 1:
                budget = sum(taken[tp] for tp in together)
                lines = {tp: timeline(tp, start.get(tp, 0), end[tp], budget) for tp in together}
                taken |= oldest_first(lines, budget, waiting)
    return {tp: start.get(tp, 0) + taken.get(tp, 0) for tp in end}
