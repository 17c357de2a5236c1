"""What a step has written into the maps of a task, so that it can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

__all__ = ["Journal", "Journalled"]


class Journalled(Protocol):
    """A map that tells a journal what it is about to change.

    Attributes:
        journal: The journal, while a step is under way that may have to be taken back.
    """

    journal: Journal | None

    def mark(self) -> Any:
        """Return what its writes change beside its entries."""
        ...

    def restore(self, keys: Sequence[bytes], befores: Sequence[Any]) -> None:
        """Set entries to what they were when they were noted."""
        ...

    def back_to(self, mark: Any) -> None:
        """Set the rest to what it was at a mark."""
        ...


class Journal:
    """The earlier contents of all entries that a step has changed."""

    def __init__(self) -> None:
        self._marks: list[tuple[Journalled, Any]] = []
        self._undo: list[Callable[[], object]] = []

    def begin(self, maps: Iterable[Journalled]) -> None:
        """Begin a step that writes into these maps."""
        for entries in maps:
            self.watch(entries)

    def watch(self, entries: Journalled) -> None:
        """Note from now on what is written into one more map."""
        entries.journal = self
        self._marks.append((entries, entries.mark()))

    def note(self, entries: Journalled, keys: Sequence[bytes], befores: Sequence[Any]) -> None:
        """Note entries of a map that is about to change them."""
        self._undo.append(lambda: entries.restore(keys, befores))

    def on_take_back(self, undo: Callable[[], object]) -> None:
        """Note how something else is undone."""
        self._undo.append(undo)

    def end(self) -> None:
        """End the step: what it has written stays."""
        for entries, _ in self._marks:
            entries.journal = None
        self._marks, self._undo = [], []

    def take_back(self) -> None:
        """End the step, and undo what it has written."""
        marks, undo = self._marks, self._undo
        self.end()
        for each in reversed(undo):
            each()
        for entries, mark in marks:
            entries.back_to(mark)
