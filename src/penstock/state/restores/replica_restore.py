"""Moving a replica to a batch: the deltas it misses, or the newest snapshot and the deltas after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.base.log_lines import own_logger
from penstock.errors import CorruptSegmentError, MissingSegmentError
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.maps import NO_BATCH, ReplicaPosition
from penstock.state.restores.restore_progress import CatchUpSteps, Changes
from penstock.state.segments.merging import uncovered
from penstock.state.segments.segment import Segment, SegmentName
from penstock.state.segments.storage import SegmentStorage

__all__ = ["CaughtUp", "apply_segment", "catch_up"]

_log = own_logger(__name__)

Reader = Callable[[SegmentName], Segment | None]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The result of `catch_up`: the number of deltas after the newest snapshot, and the bytes of those applied."""

    deltas: int
    delta_bytes: int


class _ChainBroken(Exception):  # noqa: N818 - it never leaves this module
    """The error for a delta that does not follow the replica's newest segment."""


def catch_up(replica: LmdbReplica, storage: SegmentStorage, target: int, read: Reader, steps: CatchUpSteps) -> CaughtUp:
    """Bring the replica to the end of batch ``target``.

    Args:
        replica: It may be of any age, also newer, or of a chain that has since been replaced.
        storage: The task's segments.
        target: A committed batch, -1 for the very beginning.
        read: Reads and checks one segment.
        steps: Called as it goes on.

    Raises:
        MissingSegmentError: A segment that others build on is gone.
        CorruptSegmentError: A delta that is needed is damaged.
    """
    names = [name for name in storage.names() if name.batch <= target]
    deltas = uncovered(names)
    snapshots = [name for name in names if name.kind == "snapshot"]
    newest = snapshots[-1].batch if snapshots else NO_BATCH
    head = replica.position.head
    if head > target:
        replica.reset()
    elif head != NO_BATCH and (not names or names[-1].batch < head):
        raise MissingSegmentError(
            f"segment {storage.where(SegmentName(head, 'delta'))} is gone: this machine's replica has it",
            hint="Bring the file back from a backup. To continue without it, remove the replica under "
            "state.dir as well.",
            batch=head,
        )
    if replica.position.batch == NO_BATCH and snapshots:
        steps.expect([snapshots[-1], *(name for name in deltas if name.batch > newest)])
        _start_over(replica, snapshots, read, steps)
    size = 0
    try:
        size = _apply_deltas(replica, storage, deltas, read, steps)
        if newest > replica.position.batch:
            _check_snapshot(replica, snapshots[-1], read)
    except _ChainBroken:
        names = [name for name in storage.names() if name.batch <= target]  # some may have been merged meanwhile
        deltas = uncovered(names)
        snapshots = [name for name in names if name.kind == "snapshot"]
        newest = snapshots[-1].batch if snapshots else NO_BATCH
        _start_over(replica, snapshots, read, steps)
        try:
            size = _apply_deltas(replica, storage, deltas, read, steps)
        except _ChainBroken as error:
            raise MissingSegmentError(
                f"the chain of segments has a gap: {error}",
                hint="Bring the missing file back from a backup, or run `penstock state rebuild`.",
                batch=target,
            ) from None
    return CaughtUp(sum(1 for name in deltas if name.batch > newest), size)


def _check_snapshot(replica: LmdbReplica, name: SegmentName, read: Reader) -> None:
    """Check that a replica without deltas up to this snapshot matches it: nothing happened, or they were removed."""
    try:
        snapshot = read(name)
    except CorruptSegmentError:
        return  # `_start_over` would pass over it too
    if snapshot is not None and not snapshot.follows(replica.position.head, replica.position.checksum):
        raise _ChainBroken(f"the deltas before {name} are gone")


def _apply_deltas(
    replica: LmdbReplica, storage: SegmentStorage, deltas: Sequence[SegmentName], read: Reader, steps: CatchUpSteps
) -> int:
    """Apply deltas, and merged ones, that follow one another; return their size in bytes."""
    size = 0
    waiting: tuple[SegmentName, Segment] | None = None
    steps.expect([name for name in deltas if name.batch > replica.position.batch])
    for name in deltas:
        if name.batch <= replica.position.batch:
            continue
        segment = read(name)
        if segment is None:
            raise _ChainBroken(f"{storage.where(name)} went away")
        if waiting is not None and segment.follows(*waiting[1].identity):
            _apply(replica, *waiting, steps)
        elif not segment.follows(replica.position.head, replica.position.checksum):
            missing = storage.where(SegmentName(segment.head.previous, "delta"))
            raise _ChainBroken(f"{storage.where(name)} follows {missing}, which is not there or is another one")
        # else ``waiting`` came too late: its batch was committed as an empty one, and it has no successor
        waiting = name, segment
        size += segment.size_bytes
    if waiting is not None:
        _apply(replica, *waiting, steps)
    return size


def _apply(replica: LmdbReplica, name: SegmentName, segment: Segment, steps: CatchUpSteps) -> None:
    apply_segment(replica, segment, steps.changes(name, segment))
    steps.applied(name)


def apply_segment(replica: LmdbReplica, segment: Segment, changes: Changes | None = None) -> None:
    """Move the replica by one delta that follows it.

    Args:
        replica: The replica.
        segment: The delta.
        changes: Its changes by store, where they are watched.
    """
    batch, checksum = segment.identity
    position = ReplicaPosition(batch, batch, checksum, segment.head.meta)
    replica.apply(segment.stores, changes or segment.changes, position)


def _start_over(replica: LmdbReplica, snapshots: Sequence[SegmentName], read: Reader, steps: CatchUpSteps) -> None:
    """Empty the replica and load the newest snapshot that is sound."""
    replica.reset()
    for name in reversed(snapshots):
        try:
            snapshot = read(name)
            if snapshot is not None:
                head = snapshot.head
                position = ReplicaPosition(head.batch, head.previous, head.previous_checksum, head.meta)
                replica.apply(snapshot.stores, steps.changes(name, snapshot), position, fresh=True)
                steps.applied(name)
                return
        except CorruptSegmentError as error:  # in one of its parts, perhaps: nothing of it has been kept then
            _log.warning("Passing over a damaged snapshot, the one before it is used: %s", error.message)
