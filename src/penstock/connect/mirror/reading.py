"""Positions in the source cluster, and what stands behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.connect.mirror.flows import Flow
from penstock.log.base import Fetched, TopicLog, TopicPartition
from penstock.log.stored import BatchLog, StoredRecords, StoredStretch, stretches_of

__all__ = ["SourcePiece", "MirrorReader", "as_columns", "source_partition"]

_MOST_BYTES = 4 << 20  # of a partition at once
_MOST_RECORDS = 50_000


def source_partition(flow: Flow, place: TopicPartition) -> dict[str, Any]:
    """The source partition under which Connect stores the position in a partition of the source cluster.

    >>> from penstock.connect.mirror.flows import MirrorCluster
    >>> flow = Flow(MirrorCluster("west", "west:9092"), MirrorCluster("east", "east:9092"))
    >>> source_partition(flow, TopicPartition("orders", 0))
    {'cluster': 'west', 'partition': 0, 'topic': 'orders'}
    """
    return {"cluster": flow.source.alias, "partition": place.partition, "topic": place.topic}


@dataclass(frozen=True, slots=True)
class SourcePiece:
    """Consecutive records of a partition of the source.

    Attributes:
        place: The partition.
        records: Record batches as they are stored, or columns.
        stretches: The offsets of the records.
        next_offset: The offset to read next.
    """

    place: TopicPartition
    records: StoredRecords | pa.RecordBatch
    stretches: tuple[StoredStretch, ...]
    next_offset: int

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(each.count for each in self.stretches)

    @property
    def last(self) -> int:
        """The offset of the last record."""
        return self.stretches[-1].first + self.stretches[-1].count - 1


class MirrorReader:
    """Reads partitions of the source cluster, each from the offset behind the last copied record."""

    def __init__(self, source: TopicLog) -> None:
        self._source = source
        self._positions: dict[TopicPartition, int] = {}

    def begin(self, place: TopicPartition, stored: Mapping[str, Any] | None) -> None:
        """Read a partition from behind its stored source offset; without one, from its beginning."""
        first = self._source.beginning_offset(place.topic, place.partition)
        self._positions[place] = max(first, int(stored["offset"]) + 1) if stored else first

    def keep(self, places: Sequence[TopicPartition]) -> None:
        """Read no others: topics that are deleted, or no longer wanted."""
        kept = set(places)
        self._positions = {place: offset for place, offset in self._positions.items() if place in kept}

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

    def move(self, place: TopicPartition, next_offset: int) -> None:
        """Go on from this offset."""
        self._positions[place] = next_offset

    def pieces(self, *, as_stored: bool) -> dict[str, list[SourcePiece]]:
        """The next records of all partitions that have some, by topic.

        Args:
            as_stored: Read record batches as they are stored, without decoding; the source must be a `BatchLog`.
        """
        ready = self._ready()
        found: dict[str, list[SourcePiece]] = {}
        if as_stored and ready and isinstance(self._source, BatchLog):
            for place, stored in self._source.stored(ready, _MOST_BYTES).items():
                stretches = tuple(each for batch in stored.batches for each in batch.stretches)
                self._add(found, SourcePiece(place, stored, stretches, stored.next_offset))
            return found
        for place in ready:
            fetched = self.read(place, _MOST_RECORDS)
            self._add(found, SourcePiece(place, fetched.records, stretches_of(fetched.records), fetched.next_offset))
        return found

    def _add(self, found: dict[str, list[SourcePiece]], piece: SourcePiece) -> None:
        if piece.stretches:
            found.setdefault(piece.place.topic, []).append(piece)
        else:
            self.move(piece.place, piece.next_offset)  # only aborted records, and markers of transactions

    def _ready(self) -> dict[TopicPartition, int]:
        """The positions of those partitions that have records behind them."""
        topics = sorted({place.topic for place in self._positions})
        ends = self._source.end_offsets(topics)
        behind = {place: at for place, at in self._positions.items() if at != ends.get(place, at)}
        if not behind:
            return {}
        firsts = self._source.beginning_offsets(sorted({place.topic for place in behind}))
        for place, at in behind.items():
            if at > ends[place] or at < firsts[place]:  # the topic was created anew, or retention was faster
                self._positions[place] = behind[place] = firsts[place]
        return {place: at for place, at in behind.items() if at < ends[place]}

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a record behind one of the positions."""
        if self._positions:
            self._source.wait_for_data(dict(self._positions), timeout_s)

    def behind(self) -> int:
        """The offsets of the source that are not read yet."""
        ends = {place: self._source.end_offset(place.topic, place.partition) for place in self._positions}
        return sum(max(end - self._positions[place], 0) for place, end in ends.items())


def as_columns(source: TopicLog, piece: SourcePiece) -> SourcePiece:
    """Read the record batches of a piece again, as columns."""
    if isinstance(piece.records, pa.RecordBatch):
        return piece
    first = piece.stretches[0].first
    batches = source.read_range(piece.place.topic, piece.place.partition, first, piece.next_offset)
    records = pa.concat_batches(list(batches))
    return SourcePiece(piece.place, records, stretches_of(records), piece.next_offset)
