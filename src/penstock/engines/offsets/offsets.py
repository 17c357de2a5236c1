"""Offsets of the source: their JSON in Spark's checkpoint, and the division of waiting records into batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engines.offsets.record_order import PartitionBacklog, oldest_first
from penstock.log.base import Span, TopicPartition

__all__ = ["Offsets", "SourceOffset", "batch_ends"]

Offsets = Mapping[TopicPartition, int]
BacklogsOf = Callable[[Mapping[TopicPartition, Span]], Mapping[TopicPartition, PartitionBacklog]]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The end of a batch, as Spark notes it before the batch runs.

    Attributes:
        ends: The offset behind the batch, by partition.
        tick: The last tick of the clock.
        starts: The first offset, of partitions that do not begin at the end of the batch before: new ones, those with a
            group reset, those whose next records retention has removed. It is noted, so a batch that runs again reads
            the same.
        lost: The number of offsets that retention has removed, of the latter.
        resets: The number of the last group reset that was applied (see `group_resets`).
        ids: The ids of the topics that the offsets belong to, as far as the log knows them.

    Example:
        >>> a = TopicPartition("orders", 0)
        >>> SourceOffset({a: 17}).to_json()
        {'topics': {'orders': {'0': 17}}, 'tick': 0}
        >>> SourceOffset.of(SourceOffset({a: 17}, starts={a: 3}, resets=2).to_json()).starts == {a: 3}
        True
    """

    ends: Offsets = field(default_factory=dict)
    tick: int = 0
    starts: Offsets = field(default_factory=dict)
    lost: Offsets = field(default_factory=dict)
    resets: int = 0
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Make a JSON document, without what is empty."""
        document: dict[str, Any] = {"topics": _nested(self.ends), "tick": self.tick}
        document |= {name: _nested(at) for name, at in (("starts", self.starts), ("lost", self.lost)) if at}
        document |= {"moves": self.resets} if self.resets else {}
        return document | ({"ids": dict(sorted(self.ids.items()))} if self.ids else {})

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SourceOffset:
        """Read such a document."""
        topics, starts, lost = (_flat(document.get(name, {})) for name in ("topics", "starts", "lost"))
        return cls(topics, document["tick"], starts, lost, document.get("moves", 0), document.get("ids", {}))


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return topics


def _flat(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(t, int(p)): offset for t, parts in topics.items() for p, offset in parts.items()}


def batch_ends(
    start: Offsets, end: Offsets, most: int, most_per_partition: int, backlogs: BacklogsOf | None = None
) -> dict[TopicPartition, int]:
    """Compute the ends of a batch: at most so many records, shared in proportion to those waiting per partition number.

    Topics with the same partition number belong to tasks that take the older record first. So their common share goes
    to the oldest records; otherwise a stream would run ahead of the table that it joins.

    Args:
        start: The offsets at which the batch starts; a partition that is missing starts at 0.
        end: The ends of the log.
        most: The most records of the batch.
        most_per_partition: The most records of one partition.
        backlogs: Returns the waiting records by time, for spans of partitions. None: each partition has its own share,
            whatever the times.

    Example:
        >>> a, b = TopicPartition("t", 0), TopicPartition("t", 1)
        >>> batch_ends({a: 0, b: 0}, {a: 300, b: 100}, 200, 1000) == {a: 150, b: 50}
        True
    """
    waiting = {tp: min(stop - start.get(tp, 0), most_per_partition) for tp, stop in end.items()}
    waiting = {tp: n for tp, n in waiting.items() if n > 0}
    total = sum(waiting.values())
    whole = total <= most and all(start.get(tp, 0) + n == end[tp] for tp, n in waiting.items())
    share = 1.0 if total <= most else most / total
    taken = {tp: n if share == 1.0 else max(1, int(n * share)) for tp, n in waiting.items()}
    if not whole and backlogs is not None:
        numbers: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in waiting:
            numbers[tp.partition].append(tp)
        budgets = {n: sum(taken[tp] for tp in group) for n, group in numbers.items() if len(group) > 1}
        lines = backlogs({tp: Span(start.get(tp, 0), end[tp], budgets[n]) for n in budgets for tp in numbers[n]})
        for number, budget in budgets.items():
            taken |= oldest_first({tp: lines[tp] for tp in numbers[number]}, budget, waiting)
    return {tp: start.get(tp, 0) + taken.get(tp, 0) for tp in end}
