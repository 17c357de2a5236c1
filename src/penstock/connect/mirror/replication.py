"""Copying of records, each once, from positions in the source cluster, with offset syncs; heartbeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.connect.delivery.source_writer import StoredOffsets
from penstock.connect.mirror.flows import Flow
from penstock.connect.mirror.mirror_records import Heartbeat
from penstock.connect.mirror.offset_syncs import COMPACTED, SyncWriter, append_pairs
from penstock.connect.mirror.remote_topics import RemoteTopics
from penstock.errors import FencedError, ProductionError
from penstock.log.base import Fetched, LogTransaction, TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.stored_batches import BatchLog, BatchTransaction, StoredRecords, StoredStretch, stretches_of

__all__ = [
    "MirrorHeartbeat",
    "MirrorReader",
    "MirrorSource",
    "SourcePiece",
    "as_columns",
    "heartbeat_now",
    "source_partition",
]

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


CONNECTOR = "MirrorSourceConnector"  # as Java's driver names it


class MirrorSource:
    """The copy of one flow's topics. No key or value is looked at.

    Between two Kafka clusters record batches are copied as they are stored: compressed, and not even decoded. To or
    from an embedded log records stay columns.

    The records of a round and the positions behind them are one transaction of the target for each topic, so each
    record is copied once.

    Args:
        flow: The flow.
        source: The source's log.
        target: The target's log.
    """

    def __init__(self, flow: Flow, source: TopicLog, target: TopicLog) -> None:
        self._flow, self._source, self._target = flow, source, target
        self._as_stored = isinstance(source, BatchLog) and isinstance(target, BatchLog)
        self._topics = RemoteTopics(flow, source, target)
        self._stored = StoredOffsets(target, CONNECTOR, f"mm2-offsets.{flow.source.alias}.internal")
        self._syncs = SyncWriter(flow, source, target)
        self._reader = MirrorReader(source)
        self._written: dict[TopicPartition, int | None] = {}  # source offsets, as found or stored
        self.copied = 0

    def refresh(self) -> list[TopicPartition]:
        """Create what is missing in the target: topics and partitions; copy settings. Returns what is mirrored."""
        places = self._topics.refresh()
        self._reader.keep(places)
        new = [tp for tp in places if tp not in self._reader]
        for topic in sorted({tp.topic for tp in new}):  # fences an earlier mirror before its offsets are read
            self._target.prepare_transactions([self._transaction(topic)], None)
        if new:
            self._settle()
        for tp in new:
            stored = self._stored_offset(tp)
            self._written[tp] = stored
            self._reader.begin(tp, None if stored is None else {"offset": stored})
        return places

    def begin_anew(self) -> None:
        """Forget all positions, after a failure: `refresh` finds what was written."""
        self._reader.keep([])

    def copy(self) -> int:
        """Copy the next records of each partition, and return their number."""
        before = self.copied
        for topic, pieces in self._reader.pieces(as_stored=self._as_stored).items():
            self._copy(topic, pieces)
        return self.copied - before

    def wait(self, timeout_s: float) -> None:
        """Wait for new records in the source."""
        self._reader.wait(timeout_s)

    def behind(self) -> int:
        """Return the offsets of the source that are not copied yet."""
        return self._reader.behind()

    def _copy(self, topic: str, pieces: Sequence[SourcePiece]) -> None:
        try:
            done = self._write(topic, pieces)
        except ProductionError:
            if not any(isinstance(piece.records, StoredRecords) for piece in pieces):
                raise
            pieces = [as_columns(self._source, piece) for piece in pieces]  # in batches that the target accepts
            done = self._write(topic, pieces)
        for piece in pieces:
            self._reader.move(piece.tp, piece.next_offset)
            self._written[piece.tp] = piece.last
            self.copied += piece.count
            self._sync(piece, done)
        self._syncs.flush()

    def _write(self, topic: str, pieces: Sequence[SourcePiece]) -> LogTransaction:
        with self._target.transaction(self._transaction(topic)) as transaction:
            transaction.ask_before_repeating(partial(self._is_written, pieces))
            for piece in pieces:
                _append(transaction, self._topics.remote(piece.tp), piece)
            offsets = [(source_partition(self._flow, piece.tp), {"offset": piece.last}) for piece in pieces]
            self._stored.write(transaction, offsets)
        return transaction

    def _transaction(self, topic: str) -> str:
        return f"mirror-{self._flow.source.alias}-{self._flow.target.alias}-{topic}"

    def _is_written(self, pieces: Sequence[SourcePiece]) -> bool:
        """Return whether these are written, as the source offsets show, which are part of the transaction.

        Raises:
            FencedError: Another mirror has copied more.
        """
        self._settle()
        stored = [self._stored_offset(piece.tp) for piece in pieces]
        if stored == [piece.last for piece in pieces]:
            return True
        if stored == [self._written[piece.tp] for piece in pieces]:
            return False
        flow = f"{self._flow.source.alias}->{self._flow.target.alias}"
        raise FencedError(
            f"another mirror copies {pieces[0].tp.topic} of {flow} too", hint="Run one mirror for each flow."
        )

    def _settle(self) -> None:
        """Wait until all positions that are committed by now can be read."""
        topic = self._stored.topic
        self._target.settled_ends([TopicPartition(topic, each) for each in range(self._target.partitions(topic))])

    def _stored_offset(self, tp: TopicPartition) -> int | None:
        stored = self._stored.offset(source_partition(self._flow, tp))
        return None if stored is None else int(stored["offset"])

    def _sync(self, piece: SourcePiece, done: LogTransaction) -> None:
        remote = self._topics.remote(piece.tp)
        first = done.first_offsets.get(remote, -1)
        if done.following.get(remote) == first + piece.count:
            self._syncs.note_stretches(piece.tp, piece.stretches, first)


def _append(transaction: LogTransaction | BatchTransaction, remote: TopicPartition, piece: SourcePiece) -> None:
    if isinstance(piece.records, StoredRecords):
        assert isinstance(transaction, BatchTransaction)  # noqa: S101 - so is each of a BatchLog
        transaction.append_stored(remote.topic, remote.partition, piece.records)
    else:
        transaction.append(remote.topic, remote.partition, piece.records.drop_columns(["offset"]))


class MirrorHeartbeat:
    """Heartbeats in the target cluster, which other flows replicate."""

    def __init__(self, flow: Flow, target: TopicLog) -> None:
        self._flow, self._target, self._topic = flow, target, flow.policy.heartbeats
        ensure_topic(target, self._topic, 1, COMPACTED | flow.copies("heartbeats.topic.replication.factor"))

    def beat(self) -> Heartbeat:
        """Write one heartbeat."""
        heartbeat = heartbeat_now(self._flow)
        append_pairs(self._target, self._topic, [(heartbeat.key(), heartbeat.value())])
        return heartbeat


def heartbeat_now(flow: Flow) -> Heartbeat:
    """Return a heartbeat of a flow with the time of now."""
    return Heartbeat(flow.source.alias, flow.target.alias, unix_ms())
