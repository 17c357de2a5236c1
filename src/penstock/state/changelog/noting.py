"""Which record wrote a row, where its bytes do not tell: its time and headers go into the changelog, as in Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from penstock.state.overlay import Overlay, ReadableMap, TaskOverlay

if TYPE_CHECKING:
    from penstock.state.changelog.base import Headers, Written

__all__ = ["CurrentRecord", "NotingOverlay", "note_writes", "notes_of"]


class CurrentRecord:
    """The time and the headers of the record that a task processes; None between records, and for several at once."""

    __slots__ = ("note",)

    def __init__(self) -> None:
        self.note: tuple[int, Headers] | None = None


class NotingOverlay(Overlay):
    """An overlay that notes for each row the record that wrote it last.

    Args:
        base: The map below.
        current: The record that is processed.
    """

    __slots__ = ("_current", "written")

    def __init__(self, base: ReadableMap, current: CurrentRecord) -> None:
        super().__init__(base)
        self._current = current
        self.written: dict[bytes, tuple[int, Headers]] = {}

    def rebase(self, base: ReadableMap) -> None:
        """Forget the writes and the notes, and read through to another base."""
        super().rebase(base)
        self.written = {}

    def put(self, key: bytes, value: bytes | None) -> None:
        super().put(key, value)
        if self._current.note is not None:
            self.written[key] = _as_now(self._current.note)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        super().put_many(keys, values)
        if self._current.note is not None:
            self.written.update(dict.fromkeys(keys, _as_now(self._current.note)))

    def _own(self, keys: Sequence[bytes]) -> list[Any]:
        return list(zip(super()._own(keys), map(self.written.get, keys, repeat(None)), strict=True))

    def restore(self, keys: Sequence[bytes], befores: Sequence[Any]) -> None:
        """Set the changes of keys, and their notes, to what they were."""
        super().restore(keys, [change for change, _ in befores])
        for key, (_, note) in zip(keys, befores, strict=True):
            if note is None:
                self.written.pop(key, None)
            else:
                self.written[key] = note


def _as_now(note: tuple[int, Headers]) -> tuple[int, Headers]:
    """Return a note whose headers no serde adds to any more."""
    return note if type(note[1]) is tuple else (note[0], tuple(note[1]))


def note_writes(state: TaskOverlay) -> CurrentRecord:
    """Let a state note its writes; before any view of it is opened."""
    current = CurrentRecord()
    state.wrap(lambda overlay: NotingOverlay(overlay.base, current))
    return current


def notes_of(state: TaskOverlay) -> Mapping[str, Written]:
    """Return by store which records wrote its rows in the present batch; nothing of a state that notes nothing."""
    return {
        store: overlay.written
        for store, overlay in state.maps.items()
        if isinstance(overlay, NotingOverlay) and overlay.written
    }
