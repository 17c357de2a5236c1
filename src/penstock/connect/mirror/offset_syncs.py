"""Offset syncs: when one is due, and how group offsets are translated with those that were kept."""

from __future__ import annotations

from typing import Final

from penstock.connect.mirror.records import OffsetSync
from penstock.log.base import TopicPartition

__all__ = ["OffsetSyncStore", "SyncState"]

SYNCS: Final = 64  # one for each bit of an offset
LONGEST: Final = (1 << 63) - 1


class SyncState:
    """Decides for one partition when an offset sync is due. Kafka's ``PartitionState``.

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
