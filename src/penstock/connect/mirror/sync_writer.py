"""Writing to the mirror's own topics: offset syncs as they become due, keys and values of any of them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.connect.mirror.flows import Flow
from penstock.connect.mirror.offset_syncs import SyncState
from penstock.connect.mirror.records import OffsetSync
from penstock.errors import LogError
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.stored import StoredStretch

__all__ = ["COMPACTED", "SyncWriter", "append_pairs", "syncs_topic"]

COMPACTED = {"cleanup.policy": "compact"}


def syncs_topic(flow: Flow, source: TopicLog, target: TopicLog) -> tuple[TopicLog, str]:
    """Return the log and the name of a flow's topic of offset syncs (``offset-syncs.topic.location``)."""
    if flow.setting("offset-syncs.topic.location") == "source":
        return source, flow.policy.offset_syncs_topic(flow.target.alias)
    return target, flow.policy.offset_syncs_topic(flow.source.alias)


class SyncWriter:
    """A writer of offset syncs of copied records: those that are due, and that of each partition's last record."""

    def __init__(self, flow: Flow, source: TopicLog, target: TopicLog) -> None:
        self._log, self._topic = syncs_topic(flow, source, target)
        self._enabled: bool = flow.setting("emit.offset-syncs.enabled")
        self._max_lag: int = flow.setting("offset.lag.max")
        self._states: dict[TopicPartition, SyncState] = {}
        self._due: list[OffsetSync] = []
        self._last: dict[TopicPartition, OffsetSync] = {}
        if self._enabled:
            ensure_topic(self._log, self._topic, 1, COMPACTED | flow.copies("offset-syncs.topic.replication.factor"))

    def note(self, tp: TopicPartition, upstream: int, downstream: int) -> None:
        """Note a record of a partition of the source, with its offset there and that of its copy."""
        if not self._enabled:
            return
        state = self._states.get(tp)
        if state is None:
            state = self._states[tp] = SyncState(self._max_lag)
        sync = OffsetSync(tp, upstream, downstream)
        if state.update(upstream, downstream):
            self._due.append(sync)
            self._last.pop(tp, None)
        else:
            self._last[tp] = sync

    def note_stretches(self, tp: TopicPartition, stretches: Sequence[StoredStretch], first: int) -> None:
        """Note records whose copies follow each other from an offset of the target on.

        If that is not known (-1), none is noted: groups read more again, and miss nothing.
        """
        for stretch in stretches if first >= 0 else ():
            self._note_stretch(tp, stretch, first)
            first += stretch.count

    def _note_stretch(self, tp: TopicPartition, stretch: StoredStretch, downstream: int) -> None:
        """Note records without gaps, whose first copy is at an offset of the target: few of many, most near the end.

        A group is nearly always near the end, and of older syncs fewer are kept the older they are.
        """
        last = stretch.count - 1
        rows, distance = {0, last}, self._max_lag + 1
        while distance < last:
            rows.add(last - distance)
            distance *= 2
        for row in sorted(rows):
            self.note(tp, stretch.first + row, downstream + row)

    def flush(self) -> None:
        """Write what is due.

        Raises:
            LogError: The cluster refuses.
        """
        syncs = [*self._due, *self._last.values()]
        append_pairs(self._log, self._topic, [(sync.key(), sync.value()) for sync in syncs])
        self._due.clear()
        self._last.clear()


def append_pairs(log: TopicLog, topic: str, pairs: list[tuple[bytes, bytes]]) -> None:
    """Append keys and values to the first partition of a topic.

    Raises:
        LogError: The cluster refuses.
    """
    if not pairs:
        return
    now = unix_ms()
    columns = [[now] * len(pairs), [key for key, _ in pairs], [value for _, value in pairs]]
    types = [pa.int64(), pa.large_binary(), pa.large_binary()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    try:
        log.append(topic, 0, pa.RecordBatch.from_arrays(arrays, ["timestamp", "key", "value"]))
    except LogError as error:
        raise LogError(f"the mirror cannot write to {topic}: {error.message}", hint=error.hint) from error
