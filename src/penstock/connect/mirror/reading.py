"""Positions in the source cluster, and what stands behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.connect.mirror.flows import Flow
from penstock.log.base import Fetched, TopicLog, TopicPartition

__all__ = ["SourceReader", "source_partition"]


def source_partition(flow: Flow, place: TopicPartition) -> dict[str, Any]:
    """The source partition under which Connect stores the position in a partition of the source cluster.

    >>> from penstock.connect.mirror.flows import Cluster
    >>> flow = Flow(Cluster("west", "west:9092"), Cluster("east", "east:9092"))
    >>> source_partition(flow, TopicPartition("orders", 0))
    {'cluster': 'west', 'partition': 0, 'topic': 'orders'}
    """
    return {"cluster": flow.source.alias, "partition": place.partition, "topic": place.topic}


class SourceReader:
    """Reads partitions of the source cluster, each from the offset behind the last copied record."""

    def __init__(self, source: TopicLog) -> None:
        self._source = source
        self._positions: dict[TopicPartition, int] = {}

    def begin(self, place: TopicPartition, stored: Mapping[str, Any] | None) -> None:
        """Read a partition from behind its stored source offset; without one, from its beginning."""
        first = self._source.beginning_offset(place.topic, place.partition)
        self._positions[place] = max(first, int(stored["offset"]) + 1) if stored else first

    def __contains__(self, place: object) -> bool:
        return place in self._positions

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._positions))

    def read(self, place: TopicPartition, most: int) -> Fetched:
        """The next records of a partition; records that the source has deleted are passed over."""
        position = max(self._positions[place], self._source.beginning_offset(place.topic, place.partition))
        fetched = self._source.read(place.topic, place.partition, position, most)
        if not fetched.records.num_rows:
            self._positions[place] = max(position, fetched.next_offset)
        return fetched

    def move(self, place: TopicPartition, fetched: Fetched) -> None:
        """Go on behind these records."""
        self._positions[place] = fetched.next_offset

    def behind(self) -> int:
        """The offsets of the source that are not read yet."""
        ends = {place: self._source.end_offset(place.topic, place.partition) for place in self._positions}
        return sum(max(end - self._positions[place], 0) for place, end in ends.items())
