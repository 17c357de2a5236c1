"""Counts of a store's calls, for metrics at the recording level DEBUG."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.state.overlay import Overlay

if TYPE_CHECKING:
    from penstock.state.base import Entries
    from penstock.state.overlay import TaskOverlay

__all__ = ["CountedOverlay", "count_calls", "take_calls"]


class CountedOverlay(Overlay):
    """An overlay that counts its calls, their keys and their time.

    Args:
        uncounted: The overlay whose place it takes, without changes yet.
    """

    __slots__ = ("calls",)

    def __init__(self, uncounted: Overlay) -> None:
        super().__init__(uncounted.base)
        self.calls: dict[str, list[float]] = {}

    def get(self, key: bytes) -> bytes | None:
        began = time.perf_counter()
        value = super().get(key)
        self._note("get", 1, began)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        began = time.perf_counter()
        values = super().get_many(keys)
        self._note("get", len(keys), began)
        return values

    def put(self, key: bytes, value: bytes | None) -> None:
        began = time.perf_counter()
        super().put(key, value)
        self._note("delete" if value is None else "put", 1, began)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        began = time.perf_counter()
        super().put_many(keys, values)
        deleted = sum(value is None for value in values)
        if deleted:
            self._note("delete", deleted, began)
        if deleted < len(values):
            self._note("put", len(values) - deleted, began)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        began = time.perf_counter()
        entries = super().scan(start, end, reverse=reverse)
        self._note("all" if start is None and end is None else "range", 1, began)
        return entries

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        began, ranges = time.perf_counter(), list(ranges)
        if self.changes:  # each range is a scan, which counts itself
            return super().scan_many(ranges)
        entries = super().scan_many(ranges)
        self._note("range", len(ranges), began)
        return entries

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        if self.changes:
            return super().read(start, end, limit)
        began = time.perf_counter()
        entries = super().read(start, end, limit)
        self._note("range", 1, began)
        return entries

    def _note(self, call: str, keys: int, began: float) -> None:
        numbers = self.calls.setdefault(call, [0, 0.0])
        numbers[0] += keys
        numbers[1] += time.perf_counter() - began


def count_calls(state: TaskOverlay) -> None:
    """Count the calls of a task's stores from now on; before any view is opened."""
    if not any(isinstance(overlay, CountedOverlay) for overlay in state.maps.values()):
        state.wrap(CountedOverlay)


def take_calls(state: TaskOverlay) -> dict[tuple[str, str], list[float]]:
    """Return (store, call) -> keys and seconds since the last time; nothing unless they are counted."""
    calls: dict[tuple[str, str], list[float]] = {}
    for store, overlay in state.maps.items():
        if isinstance(overlay, CountedOverlay):
            calls |= {(store, call): numbers for call, numbers in overlay.calls.items()}
            overlay.calls = {}
    return calls
