"""Whether a task's segments are all there: the chain from its newest snapshot on, followed without a replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import CorruptSegmentError
from penstock.state.segments import NO_BATCH, Segment, SegmentName, unpack
from penstock.state.storage import SegmentStorage

__all__ = ["Chain", "follow_chain", "read_segment"]


@dataclass(frozen=True, slots=True)
class Chain:
    """What a machine without a replica would come to.

    Attributes:
        head: The newest segment that can be reached, -1 for none; ``checksum`` its identity.
        gap: Why it goes no further; None if all is there.
        deltas: How many deltas there are.
        snapshots: How many snapshots.
    """

    head: int
    checksum: str
    gap: str | None
    deltas: int
    snapshots: int


def read_segment(storage: SegmentStorage, name: SegmentName) -> Segment | None:
    """A segment; None if there is none. Raises CorruptSegmentError for a damaged one."""
    data = storage.read(name)
    return None if data is None else unpack(data, storage.where(name))


def follow_chain(storage: SegmentStorage) -> Chain:
    """Reads all segments from the newest sound snapshot on, and checks that each follows the one before it.

    Args:
        storage: The task's segments.
    """
    names = storage.names()
    deltas = [name for name in names if name.kind == "delta"]
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
        found = _sound(lambda: read_segment(storage, snapshot))
        if not isinstance(found, Segment):
            return None
        before = at = (found.head.previous, found.head.previous_checksum)
        after = found.head.batch
    gap = None
    for name in deltas:
        if name.batch <= after:
            continue
        segment = _sound(lambda name=name: read_segment(storage, name))  # type: ignore[misc]
        if not isinstance(segment, Segment):
            gap = segment or f"{storage.where(name)} went away"
            break
        # One that came too late, when its batch had been committed as an empty one, has nobody that builds on it.
        previous = (segment.head.previous, segment.head.previous_checksum)
        if previous not in (at, before):
            gap = f"{storage.where(name)} follows segment {segment.head.previous}, which is not there or another one"
            break
        before, at = previous, (segment.batch, segment.checksum)
    return Chain(*at, gap, len(deltas), count)


def _sound(read: Callable[[], Segment | None]) -> Segment | str | None:
    """The segment, or what is wrong with it."""
    try:
        return read()
    except CorruptSegmentError as error:
        return error.message
