"""Restores that are under way, and the listener of their progress: Kafka's ``StateRestoreListener``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.state.restores.restore_documents import SegmentRestoreNote

if TYPE_CHECKING:
    from penstock.log.base import TopicPartition

__all__ = ["Restore", "RestoreProgress", "StateRestoreListener"]


class StateRestoreListener:
    """Kafka's ``StateRestoreListener``: called on the driver while stores are restored, in continuous mode.

    Subclass it, override what you need, and pass it to `KafkaStreams.set_global_state_restore_listener`. Threads report
    about once a second, so one call of `on_batch_restored` may stand for several batches. Standbys do not count.

    Example:
        >>> class Printer(StateRestoreListener):
        ...     def on_restore_end(self, place, store, total):
        ...         print(f"{store}: {total} records restored")
    """

    def on_restore_start(self, place: TopicPartition, store: str, start: int, end: int) -> None:
        """Note the beginning of a restore.

        Args:
            place: The partition of the changelog.
            store: The store.
            start: The first offset to read.
            end: The offset after the last one.
        """

    def on_batch_restored(self, place: TopicPartition, store: str, batch_end: int, count: int) -> None:
        """Note records that have been restored.

        Args:
            place: The partition of the changelog.
            store: The store.
            batch_end: The offset after the last of them.
            count: Their number.
        """

    def on_restore_end(self, place: TopicPartition, store: str, total: int) -> None:
        """Note the end of a restore, with the number of records that were restored."""

    def on_restore_suspended(self, place: TopicPartition, store: str, total: int) -> None:
        """Note that a task has gone elsewhere before its restore ended, with the number of records so far."""


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
