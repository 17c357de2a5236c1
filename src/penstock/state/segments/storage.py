"""The storage of one task's segments, a directory or a prefix of an object store, and their loading from there.

The one thing asked of a storage is an atomic create: of several attempts to put a segment in place exactly one wins,
and a reader of the name finds either nothing or the whole file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from penstock.errors import StateError
from penstock.state.segments.local_storage import LocalStorage
from penstock.state.segments.object_storage import OBJECT_SCHEMES, ObjectStorage, object_store
from penstock.state.segments.segment import Segment, SegmentName, damaged, unpack

__all__ = ["SegmentStorage", "check_parts", "open_storage", "read_segment"]


class SegmentStorage(Protocol):
    """The segments of one task."""

    def names(self) -> list[SegmentName]:
        """Return the names of the segments, in order of batch."""
        ...

    def where(self, name: SegmentName) -> str:
        """Return the address of a segment, for messages."""
        ...

    def read(self, name: SegmentName) -> bytes | memoryview | None:
        """Return the whole segment; None when there is none."""
        ...

    def exists(self, name: SegmentName) -> bool:
        """Return whether there is such a segment."""
        ...

    def create(self, name: SegmentName, parts: Sequence[Any]) -> bool:
        """Put a segment in place if there is none of that name; return False when there is one."""
        ...

    def make_durable(self, name: SegmentName) -> None:
        """Wait until a segment that another attempt has put in place survives a power cut."""
        ...

    def delete(self, name: SegmentName) -> None:
        """Remove a segment; do nothing when there is none."""
        ...

    def put_part(self, name: SegmentName, label: str, parts: Sequence[Any]) -> None:
        """Write a new part of a snapshot; its label is unique."""
        ...

    def read_part(self, name: SegmentName, label: str) -> bytes | memoryview | None:
        """Return a part; None when there is none."""
        ...

    def delete_part(self, name: SegmentName, label: str) -> None:
        """Remove a part; those of a snapshot that is deleted go with it."""
        ...

    def remove_parts(self, before: int) -> None:
        """Remove the parts of all snapshots before a batch, also of those that were never finished."""
        ...

    def sizes(self) -> dict[SegmentName, int]:
        """Return the size in bytes of each segment, of a snapshot with its parts."""
        ...

    def size_bytes(self) -> int:
        """Return the size in bytes of all segments together."""
        ...


def open_storage(
    checkpoint: str, task_id: str, *, durable: bool = True, options: Mapping[str, Any] | None = None
) -> SegmentStorage:
    """Return the storage of a task's segments under ``<checkpoint>/state/<task>``.

    Args:
        checkpoint: A path, or a URI with one of the schemes file, memory, s3, gs, az.
        task_id: The task.
        durable: Whether a segment is flushed to the disk before it counts as published (local storage).
        options: Settings for the object store, as ``obstore.store.from_url`` takes them.
    """
    scheme = urlsplit(checkpoint).scheme if "://" in checkpoint or checkpoint.startswith("file:") else ""
    if scheme in {"", "file"}:
        path = unquote(urlsplit(checkpoint).path) if scheme else checkpoint
        return LocalStorage(Path(path) / "state" / task_id, durable=durable)
    if scheme in OBJECT_SCHEMES:
        return ObjectStorage(object_store(checkpoint, tuple((options or {}).items())), f"state/{task_id}", checkpoint)
    raise StateError(
        f"state cannot be kept at {checkpoint!r}: there is no storage for {scheme}://",
        hint="Use a path that all executors share, or a URI with s3://, gs://, az:// or file://.",
        checkpoint=checkpoint,
    )


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
