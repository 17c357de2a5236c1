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


def source_partition(flow: Flow, tp: TopicPartition) -> dict[str, Any]:
    """Return the source partition under which Connect stores the position in a partition of the source cluster.

    >>> from penstock.connect.mirror.flows import MirrorCluster
    >>> flow = Flow(MirrorCluster("west", "west:9092"), MirrorCluster("east", "east:9092"))
    >>> source_partition(flow, TopicPartition("orders", 0))
    {'cluster': 'west', 'partition': 0, 'topic': 'orders'}
    """
    return {"cluster": flow.source.alias, "partition": tp.partition, "topic": tp.topic}


@dataclass(frozen=True, slots=True)
class SourcePiece:
    """Consecutive records of a partition of the source.

    Attributes:
        tp: The partition.
        records: Record batches as they are stored, or columns.
        stretches: The offsets of the records.
        next_offset: The offset to read next.
    """

    tp: TopicPartition
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
    """A reader of partitions of the source cluster, each from the offset behind the last copied record."""

    def __init__(self, source: TopicLog) -> None:
        self._source = source
        self._positions: dict[TopicPartition, int] = {}

    def begin(self, tp: TopicPartition, stored: Mapping[str, Any] | None) -> None:
        """Read a partition from behind its stored source offset; without one, from its beginning."""
        first = self._source.beginning_offset(tp.topic, tp.partition)
        self._positions[tp] = max(first, int(stored["offset"]) + 1) if stored else first

    def keep(self, places: Sequence[TopicPartition]) -> None:
        """Read no others: topics that are deleted, or no longer wanted."""
        kept = set(places)
        self._positions = {tp: offset for tp, offset in self._positions.items() if tp in kept}

    def __contains__(self, tp: object) -> bool:
        return tp in self._positions

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._positions))

    def read(self, tp: TopicPartition, most: int) -> Fetched:
        """Return the next records of a partition; records that the source has deleted are passed over."""
        position = max(self._positions[tp], self._source.beginning_offset(tp.topic, tp.partition))
        fetched = self._source.read(tp.topic, tp.partition, position, most)
        if not fetched.records.num_rows:
            self._positions[tp] = max(position, fetched.next_offset)
        return fetched

    def move(self, tp: TopicPartition, next_offset: int) -> None:
        """Go on from this offset."""
        self._positions[tp] = next_offset

    def pieces(self, *, as_stored: bool) -> dict[str, list[SourcePiece]]:
        """Return the next records of all partitions that have some, by topic.

        Args:
            as_stored: Read record batches as they are stored, without decoding; the source must be a `BatchLog`.
        """
        ready = self._ready()
        by_topic: dict[str, list[SourcePiece]] = {}
        if as_stored and ready and isinstance(self._source, BatchLog):
            for tp, stored in self._source.stored(ready, _MOST_BYTES).items():
                stretches = tuple(each for batch in stored.batches for each in batch.stretches)
                self._add(by_topic, SourcePiece(tp, stored, stretches, stored.next_offset))
            return by_topic
        for tp in ready:
            fetched = self.read(tp, _MOST_RECORDS)
            self._add(by_topic, SourcePiece(tp, fetched.records, stretches_of(fetched.records), fetched.next_offset))
        return by_topic

    def _add(self, by_topic: dict[str, list[SourcePiece]], piece: SourcePiece) -> None:
        if piece.stretches:
            by_topic.setdefault(piece.tp.topic, []).append(piece)
        else:
            self.move(piece.tp, piece.next_offset)  # only aborted records, and markers of transactions

    def _ready(self) -> dict[TopicPartition, int]:
        """Return the positions of those partitions that have records behind them."""
        topics = sorted({tp.topic for tp in self._positions})
        ends = self._source.end_offsets(topics)
        behind = {tp: at for tp, at in self._positions.items() if at != ends.get(tp, at)}
        if not behind:
            return {}
        firsts = self._source.beginning_offsets(sorted({tp.topic for tp in behind}))
        for tp, at in behind.items():
            if at > ends[tp] or at < firsts[tp]:  # the topic was created anew, or retention was faster
                self._positions[tp] = behind[tp] = firsts[tp]
        return {tp: at for tp, at in behind.items() if at < ends[tp]}

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a record behind one of the positions."""
        if self._positions:
            self._source.wait_for_data(dict(self._positions), timeout_s)

    def behind(self) -> int:
        """Return the offsets of the source that are not read yet."""
        ends = {tp: self._source.end_offset(tp.topic, tp.partition) for tp in self._positions}
        return sum(max(end - self._positions[tp], 0) for tp, end in ends.items())


def as_columns(source: TopicLog, piece: SourcePiece) -> SourcePiece:
    """Read the record batches of a piece again, as columns."""
    if isinstance(piece.records, pa.RecordBatch):
        return piece
    first = piece.stretches[0].first
    batches = source.read_range(piece.tp.topic, piece.tp.partition, first, piece.next_offset)
    records = pa.concat_batches(list(batches))
    return SourcePiece(piece.tp, records, stretches_of(records), piece.next_offset)
