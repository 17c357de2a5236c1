"""Offset syncs: when one is due, writing them, and how group offsets are translated with those that were kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.connect.mirror.flows import Flow
from penstock.connect.mirror.mirror_records import OffsetSync
from penstock.errors import LogError
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.stored_batches import StoredStretch

__all__ = ["COMPACTED", "OffsetSyncStore", "SyncState", "SyncWriter", "append_pairs", "syncs_topic"]

SYNCS: Final = 64  # one for each bit of an offset
LONGEST: Final = (1 << 63) - 1


class SyncState:
    """The state of one partition that decides when an offset sync is due. Kafka's ``PartitionState``.

    Args:
        max_lag: Records downstream after which there is another one (``offset.lag.max``).

    Example:
        >>> state = SyncState(100)
        >>> [state.update(offset, offset) for offset in (0, 1, 2)]
        [True, False, False]
        >>> state.update(7, 3)  # records upstream are missing
        True
    """

    __slots__ = ("_downstream", "_max_lag", "_synced", "_upstream")

    def __init__(self, max_lag: int) -> None:
        self._max_lag = max_lag
        self._upstream = self._downstream = self._synced = -1

    def update(self, upstream: int, downstream: int) -> bool:
        """Note a copied record; whether an offset sync of it is due."""
        due = (
            self._synced == -1
            or downstream - (self._synced + 1) >= self._max_lag  # a translation is exact until one after the sync
            or upstream - self._upstream != 1
            or downstream < self._downstream
        )
        if due:
            self._synced = downstream
        self._upstream, self._downstream = upstream, downstream
        return due


class OffsetSyncStore:
    """The offset syncs of partitions, fewer the older they are; translates group offsets. Kafka's ``OffsetSyncStore``.

    Between a kept sync and the next one, offsets translate to the position after the sync: never too late, so a group
    that goes over to the target cluster reads some records again, and misses none.

    Args:
        must_read_to_end: Of what is read before `finish_loading`, keep the last sync of a partition only: without the
            checkpoints of before, older ones could take groups back behind where they were.

    Example:
        >>> store, tp = OffsetSyncStore(), TopicPartition("orders", 0)
        >>> store.add(OffsetSync(tp, 100, 200))
        >>> store.finish_loading()
        >>> [store.translate(tp, offset) for offset in (99, 100, 5000)]
        [-1, 200, 201]
    """

    def __init__(self, *, must_read_to_end: bool = True) -> None:
        self._syncs: dict[TopicPartition, list[OffsetSync]] = {}
        self._must_read_to_end = must_read_to_end
        self._loaded = False

    def finish_loading(self) -> None:
        """Note that the topic was read to its end for the first time: from now on offsets are translated."""
        self._loaded = True

    def add(self, sync: OffsetSync) -> None:
        """Take the next sync of the topic."""
        syncs = self._syncs.get(sync.tp)
        last_only = self._must_read_to_end and not self._loaded
        if syncs is None or last_only or sync.upstream < syncs[0].upstream:  # a rewind makes all before it wrong
            self._syncs[sync.tp] = [sync] * SYNCS
        else:
            _insert(syncs, sync)

    def translate(self, tp: TopicPartition, upstream: int) -> int | None:
        """Return the offset in the target cluster for one in the source cluster.

        Returns:
            None: nothing is known of the partition, or the topic was not read yet; -1: the offset is too old.
        """
        syncs = self._syncs.get(tp)
        if not self._loaded or syncs is None:
            return None
        latest = next((sync for sync in syncs if sync.upstream <= upstream), None)
        if latest is None:
            return -1
        return latest.downstream + (0 if latest.upstream == upstream else 1)


def _insert(syncs: list[OffsetSync], sync: OffsetSync) -> None:
    """Put a sync first and move the others back where their distances ask for it.

    Two rules hold between syncs at ``i`` and later ``j``: the one at ``j`` is at most ``2**j - 2**i`` records older
    (`_is_recent`), and neighbours that differ are at least ``2**(i - 2)`` apart (`_is_apart`).
    """
    before_it = syncs.copy()
    candidate, old = sync, 0
    syncs[0] = sync
    for at in range(1, SYNCS):
        newer = syncs[at - 1]
        while True:
            displaced = before_it[old]
            apart = _is_apart(newer, displaced, at - 1)
            fits_behind = at + 1 >= SYNCS or _is_apart(displaced, syncs[at + 1], at)
            chosen = apart and fits_behind and _is_recent(newer, displaced, at - 1, at)
            if chosen:
                candidate = displaced
            repeated = old + 1 < SYNCS and displaced is before_it[old + 1]
            useless = repeated or not apart  # also for all places further back
            old += chosen or useless
            if old >= at or not useless:
                break
        if _is_recent(newer, syncs[at], at - 1, at):
            return  # then so are all behind it
        syncs[at] = candidate


def _is_recent(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    bound = older.upstream + (1 << j) - (1 << i)
    return newer is older or not 0 <= bound <= LONGEST or newer.upstream <= bound


def _is_apart(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    bound = older.upstream + (1 << max(i - 2, 0))
    return newer is older or (0 <= bound <= LONGEST and newer.upstream >= bound)


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
