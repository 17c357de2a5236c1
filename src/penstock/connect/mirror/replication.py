"""Copying of topics: their partitions, settings and records, each record once, with offset syncs."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pyarrow as pa

from penstock.connect.delivery.stored_offsets import StoredOffsets, ensure_topic
from penstock.connect.mirror.flows import Flow
from penstock.connect.mirror.offset_syncs import SyncState
from penstock.connect.mirror.records import Heartbeat, OffsetSync
from penstock.errors import LogError, TopicExistsError
from penstock.log.base import TopicInfo, TopicLog, TopicPartition

__all__ = ["MirrorHeartbeat", "MirrorSource", "append_pairs"]

CONNECTOR = "MirrorSourceConnector"  # as Java's driver names it
MOST = 50_000
COMPACTED = {"cleanup.policy": "compact"}


class MirrorSource:
    """The copy of one flow's topics. Records stay columns from one log to the other: no key or value is looked at.

    The records of a batch and the position behind them are one transaction of the target, so each is copied once.

    Args:
        flow: The flow.
        source: The source's log.
        target: The target's log.
    """

    def __init__(self, flow: Flow, source: TopicLog, target: TopicLog) -> None:
        self._flow, self._source, self._target = flow, source, target
        self._policy, self._taken, self._properties = flow.policy, flow.topics, flow.properties
        self._stored = StoredOffsets(target, CONNECTOR, f"mm2-offsets.{flow.source.alias}.internal")
        in_source = flow.setting("offset-syncs.topic.location") == "source"
        self._syncs_log = source if in_source else target
        self.syncs_topic = self._policy.offset_syncs_topic((flow.target if in_source else flow.source).alias)
        ensure_topic(self._syncs_log, self.syncs_topic, 1, COMPACTED)
        self._positions: dict[TopicPartition, int] = {}
        self._states: dict[TopicPartition, SyncState] = {}
        self.copied = 0

    def refresh(self) -> list[str]:
        """Create what is missing in the target: topics and partitions; copy settings. Returns the mirrored topics."""
        known = {info.name: info for info in self._target.topics()}
        names = []
        for info in self._source.topics():
            if not self._taken.takes(info.name):
                continue
            names.append(info.name)
            self._prepare(info, known)
            for number in range(info.partitions):
                self._begin(TopicPartition(info.name, number))
        return names

    def copy(self) -> int:
        """Copy the next records of each partition, and return their number."""
        before = self.copied
        for place in list(self._positions):
            self._copy(place)
        return self.copied - before

    def behind(self) -> int:
        """The offsets of the source that are not copied yet."""
        ends = {place: self._source.end_offset(place.topic, place.partition) for place in self._positions}
        return sum(max(end - self._positions[place], 0) for place, end in ends.items())

    def _prepare(self, info: TopicInfo, known: dict[str, TopicInfo]) -> None:
        remote = self._policy.remote_topic(self._flow.source.alias, info.name)
        config = {name: value for name, value in info.config.items() if self._properties.takes(name)}
        there = known.get(remote)
        if there is None:
            with contextlib.suppress(TopicExistsError):  # another mirror was faster
                self._target.create_topic(remote, info.partitions, config)
            return
        if there.partitions < info.partitions:
            self._target.create_partitions(remote, info.partitions)
        changed = {name: value for name, value in config.items() if there.config.get(name) != value}
        if changed and self._flow.setting("sync.topic.configs.enabled"):
            self._target.alter_config(remote, changed)

    def _begin(self, place: TopicPartition) -> None:
        if place in self._positions:
            return
        stored = self._stored.offset(self._partition(place))
        first = self._source.beginning_offset(place.topic, place.partition)
        self._positions[place] = max(first, int(stored["offset"]) + 1) if stored else first
        self._states[place] = SyncState(self._flow.setting("offset.lag.max"))

    def _partition(self, place: TopicPartition) -> dict[str, object]:
        return {"cluster": self._flow.source.alias, "partition": place.partition, "topic": place.topic}

    def _copy(self, place: TopicPartition) -> None:
        position = max(self._positions[place], self._source.beginning_offset(place.topic, place.partition))
        fetched = self._source.read(place.topic, place.partition, position, MOST)
        count = fetched.records.num_rows
        if not count:
            self._positions[place] = max(position, fetched.next_offset)
            return
        offsets = fetched.records.column("offset").to_numpy()
        remote = TopicPartition(self._policy.remote_topic(self._flow.source.alias, place.topic), place.partition)
        first = self._target.end_offset(remote.topic, remote.partition)
        flow = f"{self._flow.source.alias}-{self._flow.target.alias}"
        with self._target.transaction(f"mirror-{flow}-{place.topic}-{place.partition}") as transaction:
            transaction.append(remote.topic, remote.partition, fetched.records.drop_columns(["offset"]))
            self._stored.write(transaction, [(self._partition(place), {"offset": int(offsets[-1])})])
        self._positions[place] = fetched.next_offset
        self.copied += count
        self._sync(place, offsets, self._written_at(remote, first, count))

    def _written_at(self, remote: TopicPartition, first: int, count: int) -> int | None:
        """The offset of the first copy; None if others have written too, so that it is not known."""
        ends = self._target.end_offset(remote.topic, remote.partition)
        return first if 0 <= ends - first - count <= 1 else None  # Kafka ends a transaction with a marker

    def _sync(self, place: TopicPartition, offsets: np.ndarray, first: int | None) -> None:
        if first is None:
            return  # translations stay where they were: groups read more again, and miss nothing
        state, count = self._states[place], len(offsets)
        if int(offsets[-1]) - int(offsets[0]) == count - 1:
            rows = sorted({0, count - 1})  # without gaps the two ends say all
        else:
            rows = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 1) != 1).tolist()
            rows = sorted({0, *rows, count - 1})
        due = []
        for row in rows:
            pair = int(offsets[row]), first + row
            if state.update(*pair) or row == count - 1:
                due.append(OffsetSync(place, *pair))
        append_pairs(self._syncs_log, self.syncs_topic, [(sync.key(), sync.value()) for sync in due])


class MirrorHeartbeat:
    """Signs of life in the target cluster, which other flows carry on."""

    def __init__(self, flow: Flow, target: TopicLog) -> None:
        self._flow, self._target, self._topic = flow, target, flow.policy.heartbeats
        ensure_topic(target, self._topic, 1, COMPACTED)

    def beat(self) -> Heartbeat:
        """Write one heartbeat."""
        made = Heartbeat(self._flow.source.alias, self._flow.target.alias, time.time_ns() // 1_000_000)
        append_pairs(self._target, self._topic, [(made.key(), made.value())])
        return made


def append_pairs(log: TopicLog, topic: str, pairs: list[tuple[bytes, bytes]]) -> None:
    """Append keys and values to the first partition of a topic."""
    if not pairs:
        return
    now = time.time_ns() // 1_000_000
    columns = [[now] * len(pairs), [key for key, _ in pairs], [value for _, value in pairs]]
    types = [pa.int64(), pa.large_binary(), pa.large_binary()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    try:
        log.append(topic, 0, pa.RecordBatch.from_arrays(arrays, ["timestamp", "key", "value"]))
    except LogError as error:
        raise LogError(f"the mirror cannot write to {topic}: {error.message}", hint=error.hint) from error
