"""Copying of records as columns, each record once, with offset syncs; heartbeats."""

from __future__ import annotations

import numpy as np

from penstock.clock import unix_ms
from penstock.connect.delivery.stored_offsets import StoredOffsets, ensure_topic
from penstock.connect.mirror.flows import Flow
from penstock.connect.mirror.reading import SourceReader, source_partition
from penstock.connect.mirror.records import Heartbeat
from penstock.connect.mirror.remote_topics import RemoteTopics
from penstock.connect.mirror.sync_writer import COMPACTED, SyncWriter, append_pairs
from penstock.log.base import TopicLog, TopicPartition

__all__ = ["MirrorHeartbeat", "MirrorSource", "heartbeat_now"]

CONNECTOR = "MirrorSourceConnector"  # as Java's driver names it
MOST = 50_000


class MirrorSource:
    """The copy of one flow's topics. Records stay columns from one log to the other: no key or value is looked at.

    The records of a batch and the position behind them are one transaction of the target, so each is copied once.

    Args:
        flow: The flow.
        source: The source's log.
        target: The target's log.
    """

    def __init__(self, flow: Flow, source: TopicLog, target: TopicLog) -> None:
        self._flow, self._target = flow, target
        self._topics = RemoteTopics(flow, source, target)
        self._reader = SourceReader(source)
        self._stored = StoredOffsets(target, CONNECTOR, f"mm2-offsets.{flow.source.alias}.internal")
        self._syncs = SyncWriter(flow, source, target)
        self.copied = 0

    def refresh(self) -> list[TopicPartition]:
        """Create what is missing in the target: topics and partitions; copy settings. Returns what is mirrored."""
        places = self._topics.refresh()
        for place in places:
            if place not in self._reader:
                self._reader.begin(place, self._stored.offset(source_partition(self._flow, place)))
        return places

    def copy(self) -> int:
        """Copy the next records of each partition, and return their number."""
        before = self.copied
        for place in self._reader:
            self._copy(place)
        return self.copied - before

    def behind(self) -> int:
        """The offsets of the source that are not copied yet."""
        return self._reader.behind()

    def _copy(self, place: TopicPartition) -> None:
        fetched = self._reader.read(place, MOST)
        count = fetched.records.num_rows
        if not count:
            return
        offsets = fetched.records.column("offset").to_numpy()
        remote = self._topics.remote(place)
        first = self._end(remote)
        flow = f"{self._flow.source.alias}-{self._flow.target.alias}"
        with self._target.transaction(f"mirror-{flow}-{place.topic}-{place.partition}") as transaction:
            transaction.append(remote.topic, remote.partition, fetched.records.drop_columns(["offset"]))
            self._stored.write(transaction, [(source_partition(self._flow, place), {"offset": int(offsets[-1])})])
        self._reader.move(place, fetched)
        self.copied += count
        self._sync(place, offsets, self._written_at(remote, first, count))

    def _written_at(self, remote: TopicPartition, first: int, count: int) -> int | None:
        """The offset of the first copy; None if others have written too, so that it is not known."""
        ends = self._end(remote)
        return first if 0 <= ends - first - count <= 1 else None  # Kafka ends a transaction with a marker

    def _end(self, remote: TopicPartition) -> int:
        """The end of a partition of the target, with all that is committed already."""
        return self._target.settled_ends([remote])[remote]

    def _sync(self, place: TopicPartition, offsets: np.ndarray, first: int | None) -> None:
        if first is None:
            return  # translations stay where they were: groups read more again, and miss nothing
        count = len(offsets)
        if int(offsets[-1]) - int(offsets[0]) == count - 1:
            rows = sorted({0, count - 1})  # without gaps the two ends say all
        else:
            rows = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 1) != 1).tolist()
            rows = sorted({0, *rows, count - 1})
        for row in rows:
            self._syncs.note(place, int(offsets[row]), first + row)
        self._syncs.flush()


class MirrorHeartbeat:
    """Signs of life in the target cluster, which other flows carry on."""

    def __init__(self, flow: Flow, target: TopicLog) -> None:
        self._flow, self._target, self._topic = flow, target, flow.policy.heartbeats
        ensure_topic(target, self._topic, 1, COMPACTED)

    def beat(self) -> Heartbeat:
        """Write one heartbeat."""
        made = heartbeat_now(self._flow)
        append_pairs(self._target, self._topic, [(made.key(), made.value())])
        return made


def heartbeat_now(flow: Flow) -> Heartbeat:
    """A heartbeat of a flow with the time of now."""
    return Heartbeat(flow.source.alias, flow.target.alias, unix_ms())
