"""The progress of a restore: the arguments of Kafka's ``StateRestoreListener``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RestoreProgress"]


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """One store on its way to the end of its changelog.

    The first report of a store has ``offset == start`` (``onRestoreStart``), the last one ``offset == end``
    (``onRestoreEnd``), those between are Kafka's ``onBatchRestored``.

    Attributes:
        store: The name of the store.
        topic: The topic that it is restored from.
        partition: The partition of that topic.
        start: The offset at which the restore has begun.
        offset: The offset up to which records have been applied.
        end: The offset at which the restore will end.
        restored: The number of records applied so far.
        seconds: The time since the restore of this store began.

    Example:
        >>> RestoreProgress("counts", "app-counts-changelog", 0, 0, 500, 1000, 500, 0.5).share
        0.5
    """

    store: str
    topic: str
    partition: int
    start: int
    offset: int
    end: int
    restored: int
    seconds: float

    @property
    def share(self) -> float:
        """The part of the offsets that is done, from 0.0 to 1.0."""
        return (self.offset - self.start) / (self.end - self.start) if self.end > self.start else 1.0

    @property
    def is_done(self) -> bool:
        """Whether the store has reached its end."""
        return self.offset >= self.end
