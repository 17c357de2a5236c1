"""Copying of records, each once, with offset syncs; heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.base.clock import unix_ms
from penstock.connect.delivery.stored_offsets import StoredOffsets
from penstock.connect.mirror.flows import Flow
from penstock.connect.mirror.reading import MirrorReader, SourcePiece, as_columns, source_partition
from penstock.connect.mirror.records import Heartbeat
from penstock.connect.mirror.remote_topics import RemoteTopics
from penstock.connect.mirror.sync_writer import COMPACTED, SyncWriter, append_pairs
from penstock.errors import FencedError, ProductionError
from penstock.log.base import LogTransaction, TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.stored import BatchLog, BatchTransaction, StoredRecords

__all__ = ["MirrorHeartbeat", "MirrorSource", "heartbeat_now"]

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
