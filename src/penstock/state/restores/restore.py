"""The restores that are under way, in one form for both modes, as the console shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.state.restores.documents import SegmentRestoreNote
from penstock.state.restores.progress import RestoreProgress

__all__ = ["Restore"]


@dataclass(frozen=True, slots=True)
class Restore:
    """One store, or the stores of one task, on the way to their newest state.

    Attributes:
        stores: The stores.
        partition: The partition of their task.
        source: The changelog topic, or "segments" of the checkpoint.
        where: The stream thread or machine that does it.
        records: Records that were applied.
        total: Offsets to be read, of a changelog; None where only bytes are known.
        share: The part that is done, from 0.0 to 1.0.
        seconds: The time since it began.

    Example:
        >>> half = Restore(("counts",), 0, "app-counts-changelog", "thread-0", 500, 1000, 0.5, 2.0)
        >>> half.per_second, half.remaining_seconds
        (250.0, 2.0)
    """

    stores: tuple[str, ...]
    partition: int
    source: str
    where: str
    records: int
    total: int | None
    share: float
    seconds: float

    @classmethod
    def of_changelog(cls, progress: RestoreProgress, thread: str) -> Restore:
        """Return the restore that a stream thread has reported."""
        total = progress.end - progress.start
        return cls(
            (progress.store,),
            progress.partition,
            progress.topic,
            thread,
            progress.restored,
            total,
            progress.share,
            progress.seconds,
        )

    @classmethod
    def of_segments(cls, note: SegmentRestoreNote) -> Restore:
        """Return the restore that a worker has noted in the checkpoint."""
        partition = int(note.task.rpartition("_")[2])
        share = note.done_bytes / note.total_bytes if note.total_bytes else 0.0
        rows = sum(note.rows.values())
        return cls(tuple(note.rows), partition, "segments", note.host, rows, None, share, note.seconds)

    @property
    def per_second(self) -> float | None:
        """Records a second; None before there is any."""
        return self.records / self.seconds if self.seconds > 0 and self.records else None

    @property
    def remaining_seconds(self) -> float | None:
        """The time that is left at this rate; None before there is one."""
        return self.seconds * (1 - self.share) / self.share if self.share > 0 else None

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Restore:
        """Return what `document` has written."""
        return cls(**{**document, "stores": tuple(document["stores"])})
