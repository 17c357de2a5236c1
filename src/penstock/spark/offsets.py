"""Offsets of the source: as JSON in Spark's checkpoint, and how far a batch may go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.log.base import TopicPartition

__all__ = ["Offsets", "admit", "offsets_from", "offsets_to"]

Offsets = Mapping[TopicPartition, int]


def offsets_to(offsets: Offsets, tick: int) -> dict[str, Any]:
    """Offsets as JSON: ``{"topics": {"orders": {"0": 17}}, "tick": 0}``."""
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return {"topics": topics, "tick": tick}


def offsets_from(document: Mapping[str, Any]) -> tuple[dict[TopicPartition, int], int]:
    """Offsets and tick of such a JSON document."""
    topics = document["topics"]
    found = {TopicPartition(t, int(p)): offset for t, parts in topics.items() for p, offset in parts.items()}
    return found, document["tick"]


def admit(start: Offsets, end: Offsets, most: int, most_per_partition: int) -> dict[TopicPartition, int]:
    """How far a batch goes: at most so many records, shared out in proportion to what waits in each partition.

    Example:
        >>> a, b = TopicPartition("t", 0), TopicPartition("t", 1)
        >>> admit({a: 0, b: 0}, {a: 300, b: 100}, 200, 1000) == {a: 150, b: 50}
        True
    """
    waiting = {tp: min(stop - start.get(tp, 0), most_per_partition) for tp, stop in end.items()}
    total = sum(n for n in waiting.values() if n > 0)
    share = 1.0 if total <= most else most / total
    taken = {tp: n if share == 1.0 else max(1, int(n * share)) for tp, n in waiting.items() if n > 0}
    return {tp: start.get(tp, 0) + taken.get(tp, 0) for tp in end}
