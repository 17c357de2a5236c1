"""Restores that are under way, and the listener of their progress: Kafka's ``StateRestoreListener``.

A worker that brings the replica of a task up to date may be on any machine. It writes a small document into the
checkpoint once a second (every five seconds in an object store) and removes it at the end, so that the console of the
driver, or one beside it, can show how far it has come. A restore that is over sooner writes nothing.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.state.checkpoint import delete_document, list_documents, local_directory, read_document, replace_document
from penstock.state.segments.segment import Segment, SegmentName
from penstock.state.segments.storage import SegmentStorage

if TYPE_CHECKING:
    from penstock.log.base import TopicPartition

__all__ = [
    "CatchUpSteps",
    "Changes",
    "Restore",
    "RestoreProgress",
    "SegmentRestore",
    "SegmentRestoreNote",
    "StateRestoreListener",
    "forget_restores",
    "read_restores",
]

_log = own_logger(__name__)
_FOLDER = "console/restores"
_EVERY_S, _EVERY_REMOTE_S = 1.0, 5.0
_OLD_MS = 60_000  # its writer has died
_MOST = 1_000
Changes = Callable[[str], Iterator[tuple[list[bytes], list[bytes | None]]]]


@dataclass(frozen=True, slots=True)
class SegmentRestoreNote:
    """The progress of a task with its segments.

    Attributes:
        task: The task, ``<sub-topology>_<partition>``.
        host: The machine of the worker.
        rows: Rows written to each store so far.
        done_bytes: Bytes of segments applied.
        total_bytes: Bytes of all segments to apply.
        seconds: The time since it began.
        at_ms: When this was noted.
    """

    task: str
    host: str
    rows: Mapping[str, int]
    done_bytes: int
    total_bytes: int
    seconds: float
    at_ms: int


class CatchUpSteps:
    """The steps of bringing a replica up to date; nothing is noted of them."""

    def expect(self, names: list[SegmentName]) -> None:
        """Name the segments that are to be applied."""

    def changes(self, name: SegmentName, segment: Segment) -> Changes:  # noqa: ARG002 - for those that note it
        """Return the changes of a segment by store; it is applied next."""
        return segment.changes

    def applied(self, name: SegmentName) -> None:
        """Note that a segment is applied."""


class SegmentRestore(CatchUpSteps):
    """The restore of one task as it goes on; it notes itself in the checkpoint where that is due.

    Args:
        checkpoint: The checkpoint location.
        task: The task.
        storage: Its segments.
        every_s: The seconds before the first note, and between two; by default 1, in an object store 5.
    """

    def __init__(self, checkpoint: str, task: str, storage: SegmentStorage, every_s: float | None = None) -> None:
        self._checkpoint, self._task, self._storage = checkpoint, task, storage
        if every_s is None:
            every_s = _EVERY_REMOTE_S if local_directory(checkpoint) is None else _EVERY_S
        self._every_s = every_s
        self._began = self._due = time.monotonic()
        self._due += every_s
        self._has_noted = False
        self._rows: dict[str, int] = {}
        self._rows_in_hand: dict[str, int] = {}
        self._names: frozenset[SegmentName] = frozenset()
        self._sizes: Mapping[SegmentName, int] | None = None
        self._done: list[SegmentName] = []
        self._in_hand: SegmentName | None = None
        self._parts = (0, 0)  # of the segment in hand: opened, and all

    def expect(self, names: list[SegmentName]) -> None:
        """Name the segments that are to be applied, besides those that are done."""
        self._names, self._sizes = frozenset((*names, *self._done)), None

    def changes(self, name: SegmentName, segment: Segment) -> Changes:
        """Return the changes of a segment by store, counted as they pass."""
        self._in_hand, self._rows_in_hand = name, {}
        self._parts = (0, sum(len(part["stores"]) for part in segment.head.parts))
        inner = segment.open_part
        if inner is not None:

            def opened(part: dict[str, Any]) -> Segment:
                self._parts = (self._parts[0] + 1, self._parts[1])
                return inner(part)

            segment.open_part = opened

        def counted(store: str) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
            self._rows_in_hand[store] = 0  # the replica asks again when its file has to grow
            for keys, values in segment.changes(store):
                yield keys, values
                self._rows_in_hand[store] += len(keys)
                self._note_if_due()

        return counted

    def applied(self, name: SegmentName) -> None:
        """Note that a segment is applied."""
        self._done.append(name)
        for store, rows in self._rows_in_hand.items():
            self._rows[store] = self._rows.get(store, 0) + rows
        self._in_hand, self._rows_in_hand = None, {}
        self._note_if_due()

    def end(self) -> None:
        """Remove the note, if there is one."""
        if self._has_noted:
            _quietly(lambda: delete_document(self._checkpoint, self._name))

    @property
    def _name(self) -> str:
        return f"{_FOLDER}/{self._task}.json"

    def _note_if_due(self) -> None:
        if time.monotonic() >= self._due:
            self._has_noted = True
            _quietly(lambda: replace_document(self._checkpoint, self._name, json.dumps(asdict(self._note()))))
            self._due = time.monotonic() + self._every_s

    def _note(self) -> SegmentRestoreNote:
        sizes = self._sizes = self._storage.sizes() if self._sizes is None else self._sizes
        done = sum(sizes.get(name, 0) for name in self._done)
        if self._in_hand is not None and self._parts[1]:
            opened = max(self._parts[0] - 1, 0)
            done += int(sizes.get(self._in_hand, 0) * min(opened / self._parts[1], 1.0))
        total = max(sum(sizes.get(name, 0) for name in self._names), done)
        rows = {name: self._rows.get(name, 0) + self._rows_in_hand.get(name, 0) for name in self._stores}
        taken = round(time.monotonic() - self._began, 3)
        return SegmentRestoreNote(self._task, socket.gethostname(), rows, done, total, taken, unix_ms())

    @property
    def _stores(self) -> list[str]:
        return list(dict.fromkeys((*self._rows, *self._rows_in_hand)))


def read_restores(checkpoint: str) -> list[SegmentRestoreNote]:
    """Return the restores that are under way, by task; those of workers that have died are left out after a minute."""
    notes: list[SegmentRestoreNote] = []

    def read() -> None:
        for name in list_documents(checkpoint, _FOLDER)[:_MOST]:
            text = read_document(checkpoint, f"{_FOLDER}/{name}")
            with suppress(ValueError, TypeError):
                note = SegmentRestoreNote(**json.loads(text or "null"))
                if note.at_ms > unix_ms() - _OLD_MS:
                    notes.append(note)

    _quietly(read)
    return sorted(notes, key=lambda note: [int(part) for part in note.task.split("_") if part.isdecimal()])


def forget_restores(checkpoint: str) -> None:
    """Remove the notes of workers that have died."""

    def forget() -> None:
        for name in list_documents(checkpoint, _FOLDER):
            delete_document(checkpoint, f"{_FOLDER}/{name}")

    _quietly(forget)


def _quietly(step: Callable[[], object]) -> None:
    try:
        step()
    except Exception as error:  # noqa: BLE001 - a note for people: no restore fails for it
        _log.debug("the progress of a restore: %s", error)


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
