"""Positions of a state: the offset of the last record of each topic partition in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from penstock.base.java_names import with_java_names

__all__ = ["Position", "PositionBound"]

_NOTHING: Mapping[str, Mapping[int, int]] = MappingProxyType({})


@with_java_names
@dataclass(frozen=True)
class Position:
    """Kafka's ``Position``: topic -> partition -> offset of the last record in the state.

    >>> Position().with_component("orders", 0, 17).to_json()
    {'orders': {'0': 17}}
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=lambda: _NOTHING)

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Return this position with one more offset; the larger one counts."""
        return self.merge(Position({topic: {partition: offset}}))

    def merge(self, other: Position) -> Position:
        """Combine two positions; the larger offsets count."""
        offsets = {topic: dict(parts) for topic, parts in self.offsets.items()}
        for topic, parts in other.offsets.items():
            mine = offsets.setdefault(topic, {})
            for partition, offset in parts.items():
                mine[partition] = max(offset, mine.get(partition, offset))
        return Position(offsets)

    def of_partition(self, topics: tuple[str, ...], partition: int) -> Position:
        """Return the part of these topics with this partition number."""
        parts = {topic: self.offsets[topic] for topic in topics if partition in self.offsets.get(topic, ())}
        return Position({topic: {partition: numbers[partition]} for topic, numbers in parts.items()})

    def offset(self, topic: str, partition: int) -> int | None:
        """Return the offset of a topic partition; None if there is none."""
        return self.offsets.get(topic, {}).get(partition)

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return the position as plain data."""
        return {
            topic: {str(partition): offset for partition, offset in sorted(parts.items())}
            for topic, parts in sorted(self.offsets.items())
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Mapping[Any, int]]) -> Position:
        """Make a position from the output of `to_json`."""
        return cls({topic: {int(p): int(offset) for p, offset in parts.items()} for topic, parts in document.items()})


@with_java_names
@dataclass(frozen=True)
class PositionBound:
    """Kafka's ``PositionBound``: the least position of a state for a query to be answered.

    >>> bound = PositionBound.at(Position({"orders": {0: 17}}))
    >>> bound.allows(Position({"orders": {0: 16}})), bound.allows(Position({"orders": {0: 18, 1: 3}}))
    (False, True)
    """

    position: Position = field(default_factory=Position)

    @classmethod
    def unbounded(cls) -> PositionBound:
        """Accept every position."""
        return cls()

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        """Require at least this position."""
        return cls(position)

    def allows(self, position: Position, partition: int | None = None) -> bool:
        """Return whether a position is at or beyond the bound.

        Args:
            position: The position of a state.
            partition: Compare only this partition's offsets; None: all.
        """
        return all(
            (seen := position.offset(topic, number)) is not None and seen >= offset
            for topic, parts in self.position.offsets.items()
            for number, offset in parts.items()
            if partition is None or number == partition
        )
