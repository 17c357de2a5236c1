"""Many small deltas merged into one segment: the last change of each key, over a range of batches.

A merged segment names all deltas in it, so that it follows the segment before its range, and any replica that stands
inside the range too: changes that such a replica has already are written once more, with the same result.

The merged deltas stay where they are until the next merge, for readers that have listed them and are about to read
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from penstock.base.late_polars import pl
from penstock.state.maps import CHANGES_SCHEMA
from penstock.state.segments.segment import Segment, SegmentHead, SegmentName, pack
from penstock.state.segments.storage import SegmentStorage, read_segment

__all__ = ["merge_deltas", "uncovered"]

_FEWEST = 2
_PIECE_ROWS = 100_000


def uncovered(names: Iterable[SegmentName]) -> list[SegmentName]:
    """Return the deltas and merged segments that no other merged segment holds, in order."""
    merged = sorted((name for name in names if name.kind == "merged"), key=lambda name: (name.first, -name.batch))
    widest: list[SegmentName] = []
    for name in merged:
        if not widest or name.batch > widest[-1].batch:
            widest.append(name)
    deltas = [name for name in names if name.kind == "delta" and not any(name in each for each in widest)]
    return sorted([*widest, *deltas])


def merge_deltas(
    storage: SegmentStorage, head: SegmentHead, sizes: Mapping[SegmentName, int], most_bytes: int
) -> SegmentName | None:
    """Merge the newest deltas that are in a replica, and earlier merged segments as long as they are no larger.

    Args:
        storage: The task's segments.
        head: The header that a snapshot of the replica would have; its ``previous`` is the newest delta to be merged.
        sizes: Of all segments.
        most_bytes: The largest size of the deltas together.

    Returns:
        The merged segment; None if there was too little to merge, or another process was faster.
    """
    segments = _links(storage, head, _chosen(sizes, head, most_bytes))
    if len(segments) < _FEWEST:
        return None
    oldest, newest = segments[0], segments[-1]
    chain = [link for segment in segments for link in segment.links]
    merged = replace(
        head,
        kind="merged",
        batch=newest.batch,
        previous=oldest.head.previous,
        previous_checksum=oldest.head.previous_checksum,
        meta=newest.head.meta,
        chain=tuple(chain),
    )
    name = SegmentName(newest.batch, "merged", oldest.first)
    stores = dict.fromkeys(store for segment in segments for store in segment.stores)
    data, _ = pack(merged, {store: _last_changes(segments, store) for store in stores}, {})
    if not storage.create(name, data):
        return None
    earlier = [each for each in sizes if each.kind == "merged"]
    for each in sizes:
        if any(each in other for other in earlier if other != each):
            storage.delete(each)
    return name


def _chosen(sizes: Mapping[SegmentName, int], head: SegmentHead, most_bytes: int) -> list[SegmentName]:
    """Return the names to merge, from the newest on backwards."""
    snapshots = [name.batch for name in sizes if name.kind == "snapshot"]
    after = max(snapshots, default=-1)
    chosen: list[SegmentName] = []
    total = 0
    for name in reversed(uncovered(sizes)):
        if name.batch > head.previous:
            continue
        is_larger = name.kind == "merged" and sizes[name] > total
        if name.first <= after or total + sizes[name] > most_bytes or is_larger:
            break
        chosen.append(name)
        total += sizes[name]
    return chosen


def _links(storage: SegmentStorage, head: SegmentHead, names: list[SegmentName]) -> list[Segment]:
    """Return the segments that lead to the replica's head, oldest first; none if they do not follow one another."""
    segments: list[Segment] = []
    previous = (head.previous, head.previous_checksum)
    for name in names:
        segment = read_segment(storage, name)
        if segment is None or name.batch < previous[0]:
            return []
        if segment.identity == previous:
            segments.insert(0, segment)
            previous = (segment.head.previous, segment.head.previous_checksum)
        # else it came too late: its batch was committed as an empty one, and it has no successor
    return segments


def _last_changes(segments: list[Segment], store: str) -> list[pa.RecordBatch]:
    pieces = [piece for segment in segments for piece in segment.change_batches(store)]
    frame = pl.from_arrow(pa.Table.from_batches(pieces, CHANGES_SCHEMA))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - for the type checker
    last = frame.unique("key", keep="last", maintain_order=True).sort("key")
    return list(last.to_arrow().cast(CHANGES_SCHEMA).to_batches(max_chunksize=_PIECE_ROWS))
