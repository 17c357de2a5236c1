"""Restores from segments that take longer than a second, noted in the checkpoint while they last.

A worker that brings the replica of a task up to date may be on any machine. It writes a small document once a second
(every five seconds in an object store) and removes it at the end, so that the console of the driver, or one beside it,
can show how far it has come. A restore that is over sooner writes nothing.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.state.checkpoint import (
    delete_document,
    list_documents,
    local_directory,
    read_document,
    replace_document,
)
from penstock.state.segments.segment import Segment, SegmentName
from penstock.state.segments.storage import SegmentStorage

__all__ = ["CatchUpSteps", "Changes", "SegmentRestore", "SegmentRestoreNote", "forget_restores", "read_restores"]

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
