"""A check that a task's segments are complete: the chain from its newest snapshot on, followed without a replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import CorruptSegmentError
from penstock.state.maps import NO_BATCH
from penstock.state.segments.merging import uncovered
from penstock.state.segments.segment import Segment, SegmentName
from penstock.state.segments.storage import SegmentStorage, check_parts, read_segment

__all__ = ["Chain", "follow_chain", "read_segment"]


@dataclass(frozen=True, slots=True)
class Chain:
    """The state that a machine without a replica could restore.

    Attributes:
        head: The newest segment that can be reached, -1 for none; ``checksum`` its identity.
        gap: The reason why the chain ends there; None if it is complete.
        deltas: The number of deltas, merged ones counted as one each.
        snapshots: The number of snapshots.
    """

    head: int
    checksum: str
    gap: str | None
    deltas: int
    snapshots: int


def follow_chain(storage: SegmentStorage) -> Chain:
    """Read all segments from the newest sound snapshot on, and check that each follows the one before it.

    Args:
        storage: The task's segments.
    """
    names = storage.names()
    deltas = uncovered(names)
    snapshots = [name for name in names if name.kind == "snapshot"]
    best: Chain | None = None
    for snapshot in [*reversed(snapshots), None]:
        chain = _from(storage, snapshot, deltas, len(snapshots))
        if chain is not None and (best is None or (best.gap and chain.head > best.head)):
            best = chain
        if best is not None and best.gap is None:
            break
    assert best is not None  # noqa: S101 - the last round begins with nothing, which is always sound
    return best


def _from(storage: SegmentStorage, snapshot: SegmentName | None, deltas: list[SegmentName], count: int) -> Chain | None:
    before = (NO_BATCH, "")
    at = before
    after = NO_BATCH
    if snapshot is not None:
        snapshot_segment = _sound(lambda: _whole(storage, snapshot))
        if not isinstance(snapshot_segment, Segment):
            return None
        before = at = (snapshot_segment.head.previous, snapshot_segment.head.previous_checksum)
        after = snapshot_segment.head.batch
    gap = None
    for name in deltas:
        if name.batch <= after:
            continue
        segment = _sound(lambda name=name: read_segment(storage, name))  # type: ignore[misc]
        if not isinstance(segment, Segment):
            gap = segment or f"{storage.where(name)} went away"
            break
        # One that came too late, when its batch had been committed as an empty one, has no successor.
        if not segment.follows(*at) and not segment.follows(*before):
            gap = f"{storage.where(name)} follows segment {segment.head.previous}, which is not there or another one"
            break
        before, at = (segment.head.previous, segment.head.previous_checksum), segment.identity
    return Chain(*at, gap, len(deltas), count)


def _whole(storage: SegmentStorage, name: SegmentName) -> Segment | None:
    segment = read_segment(storage, name)
    if segment is not None:
        check_parts(segment)
    return segment


def _sound(read: Callable[[], Segment | None]) -> Segment | str | None:
    """Return the segment, or a text that says what is wrong with it."""
    try:
        return read()
    except CorruptSegmentError as error:
        return error.message
