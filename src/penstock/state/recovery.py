"""Bringing a replica to a batch: the deltas it misses, or the newest snapshot and the deltas after it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.errors import CorruptSegmentError, MissingSegmentError
from penstock.state.replica import Position, Replica
from penstock.state.segments import NO_BATCH, Segment, SegmentName
from penstock.state.storage import SegmentStorage

__all__ = ["CaughtUp", "apply_segment", "catch_up"]

_log = logging.getLogger(__name__)

Reader = Callable[[SegmentName], Segment | None]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """What was done: how many deltas there are after the newest snapshot, and the bytes of those applied."""

    deltas: int
    delta_bytes: int


class _ChainBroken(Exception):  # noqa: N818 - it never leaves this module
    """The next delta does not follow what the replica holds."""


def catch_up(replica: Replica, storage: SegmentStorage, target: int, read: Reader) -> CaughtUp:
    """Brings the replica to the end of batch ``target``.

    Args:
        replica: It may be of any age, also newer, or of a chain that has since been replaced.
        storage: The task's segments.
        target: A committed batch, -1 for the very beginning.
        read: Reads and checks one segment.

    Raises:
        MissingSegmentError: A segment that others build on is gone.
        CorruptSegmentError: A delta that is needed is damaged.
    """
    names = [name for name in storage.names() if name.batch <= target]
    deltas = [name for name in names if name.kind == "delta"]
    snapshots = [name for name in names if name.kind == "snapshot"]
    newest = snapshots[-1].batch if snapshots else NO_BATCH
    head = replica.position.head
    if head > target:
        replica.reset()
    elif head != NO_BATCH and (not names or names[-1].batch < head):
        raise MissingSegmentError(
            f"segment {storage.where(SegmentName(head, 'delta'))} is gone: this machine's replica has it",
            hint="Bring the file back from a backup. To go on without it, remove the replica under state.dir as well.",
            batch=head,
        )
    if replica.position.batch == NO_BATCH and snapshots:
        _start_over(replica, snapshots, read)
    size = 0
    try:
        size = _apply_deltas(replica, storage, deltas, read)
        if newest > replica.position.batch:
            _check_snapshot(replica, snapshots[-1], read)
    except _ChainBroken:
        _start_over(replica, snapshots, read)
        try:
            size = _apply_deltas(replica, storage, deltas, read)
        except _ChainBroken as error:
            raise MissingSegmentError(
                f"the chain of segments has a gap: {error}",
                hint="Bring the missing file back from a backup, or run `penstock state rebuild`.",
                batch=target,
            ) from None
    return CaughtUp(sum(1 for name in deltas if name.batch > newest), size)


def _check_snapshot(replica: Replica, name: SegmentName, read: Reader) -> None:
    """There are no deltas between the replica and this snapshot: either nothing happened, or they have been removed."""
    try:
        snapshot = read(name)
    except CorruptSegmentError:
        return  # `_start_over` would pass over it too
    if snapshot is not None and not _follows(snapshot, replica.position.head, replica.position.checksum):
        raise _ChainBroken(f"the deltas before {name} are gone")


def _apply_deltas(replica: Replica, storage: SegmentStorage, deltas: Sequence[SegmentName], read: Reader) -> int:
    size = 0
    waiting: Segment | None = None
    for name in deltas:
        if name.batch <= replica.position.batch:
            continue
        segment = read(name)
        if segment is None:
            raise _ChainBroken(f"{storage.where(name)} went away")
        if waiting is not None and _follows(segment, waiting.batch, waiting.checksum):
            apply_segment(replica, waiting)
        elif not _follows(segment, replica.position.head, replica.position.checksum):
            missing = storage.where(SegmentName(segment.head.previous, "delta"))
            raise _ChainBroken(f"{storage.where(name)} follows {missing}, which is not there or is another one")
        # else ``waiting`` came too late: its batch was committed as an empty one, and nobody has built on it
        waiting = segment
        size += segment.size_bytes
    if waiting is not None:
        apply_segment(replica, waiting)
    return size


def _follows(segment: Segment, batch: int, checksum: str) -> bool:
    return (segment.head.previous, segment.head.previous_checksum) == (batch, checksum)


def apply_segment(replica: Replica, segment: Segment) -> None:
    """Moves the replica by one delta that follows it."""
    position = Position(segment.batch, segment.batch, segment.checksum, segment.head.meta)
    replica.apply(segment.stores, segment.changes, position)


def _start_over(replica: Replica, snapshots: Sequence[SegmentName], read: Reader) -> None:
    """Empties the replica and loads the newest snapshot that is sound."""
    replica.reset()
    for name in reversed(snapshots):
        try:
            snapshot = read(name)
        except CorruptSegmentError as error:
            _log.warning("Passing over a damaged snapshot, the one before it is used: %s", error.message)
            continue
        if snapshot is not None:
            head = snapshot.head
            position = Position(head.batch, head.previous, head.previous_checksum, head.meta)
            replica.apply(snapshot.stores, snapshot.changes, position, fresh=True)
            return
