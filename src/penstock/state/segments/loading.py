"""Loading of segments from a storage, those in parts too."""

from __future__ import annotations

from typing import Any

from penstock.state.segments.segment import Segment, SegmentName, damaged, unpack
from penstock.state.segments.storage import SegmentStorage

__all__ = ["check_parts", "read_segment"]


def read_segment(storage: SegmentStorage, name: SegmentName) -> Segment | None:
    """Read a segment; return None if there is none. The parts of a large one are read when their rows are asked for.

    Raises:
        CorruptSegmentError: It is damaged; of a part that is damaged or gone, when it is read.
    """
    data = storage.read(name)
    if data is None:
        return None
    segment = unpack(data, storage.where(name))
    if segment.head.parts:
        segment.open_part = lambda part: _part(storage, name, part)
    return segment


def _part(storage: SegmentStorage, name: SegmentName, part: dict[str, Any]) -> Segment:
    where = f"{storage.where(name)}, part {part['label']},"
    data = storage.read_part(name, part["label"])
    if data is None:
        raise damaged(where, "it is not there")
    segment = unpack(data, where)
    if segment.checksum != part["checksum"]:
        raise damaged(where, "it is another one than the snapshot names")
    return segment


def check_parts(segment: Segment) -> None:
    """Read all parts; raise CorruptSegmentError for one that is damaged or gone."""
    for part in segment.head.parts:
        assert segment.open_part is not None  # noqa: S101 - set by read_segment
        segment.open_part(part)
