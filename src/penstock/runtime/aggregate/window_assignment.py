"""The assignment of rows to windows that are still open at the row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.tables.operators import drop_null_keys
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.operations.windows import WindowSpec

__all__ = ["FOREVER", "NO_TIME", "WindowAssigner", "stream_time_meta", "window_bounds"]

FOREVER = (1 << 63) - 1  # where an unlimited window ends
NO_TIME = -1


def window_bounds(
    windows: WindowSpec, timestamps: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the windows of each time, oldest first: (position of the time, start, end)."""
    if windows.kind == "unlimited":
        index = np.flatnonzero(timestamps >= windows.start_ms)
        return index, np.full(len(index), windows.start_ms, np.int64), np.full(len(index), FOREVER, np.int64)
    size, advance = windows.size_ms, windows.advance_ms or windows.size_ms
    oldest = np.maximum(timestamps - size + advance, 0) // advance * advance
    if advance == size:
        return np.arange(len(timestamps)), oldest, oldest + size
    counts = np.maximum((timestamps - oldest) // advance + 1, 0)
    index = np.repeat(np.arange(len(timestamps)), counts)
    number = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = oldest[index] + number * advance
    return index, starts, starts + size


def stream_time_meta(store: str) -> str:
    """Return the name of the number that is the operator's stream time."""
    return f"{store}/stream-time"


class WindowAssigner:
    """Assigns rows to windows; the operator's own stream time is carried from batch to batch."""

    def __init__(self, node: str, windows: WindowSpec, store: str, context: TaskContext) -> None:
        self._name = node
        self._windows = windows
        self._meta = stream_time_meta(store)
        self._context = context

    def observe(self, rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
        """Return the rows that have a key, and the operator's stream time at each of them."""
        rows = drop_null_keys(rows, self._name, self._context)
        before = self._context.get_meta(self._meta, NO_TIME)
        times = np.maximum.accumulate(np.maximum(rows.timestamps, before))
        if len(times) and int(times[-1]) > before:
            self._context.put_meta(self._meta, int(times[-1]))
        return rows, times

    def open_window(self, timestamp: int) -> tuple[int, int] | None:
        """Return the tumbling window of a time; None if it has closed."""
        size = self._windows.size_ms
        start = max(timestamp, 0) // size * size
        stream_time = max(timestamp, self._context.get_meta(self._meta, NO_TIME))
        return (start, start + size) if start + size > stream_time - self._windows.grace_ms else None

    def observe_one(self, timestamp: int) -> int:
        """Move the operator's stream time on, and return it."""
        before = self._context.get_meta(self._meta, NO_TIME)
        if timestamp <= before:
            return before
        self._context.put_meta(self._meta, timestamp)
        return timestamp

    def assign(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:
        """Return each row once for every open window of its time, under a windowed key; others count as dropped."""
        index, starts, ends = window_bounds(self._windows, rows.timestamps)
        is_open = ends > stream_times[index] - self._windows.grace_ms
        if not is_open.all():
            self._context.drop_rows(self._name, rows, index[~is_open], "the window has closed")
            index, starts, ends = index[is_open], starts[is_open], ends[is_open]
        hopping = self._windows.kind == "time" and self._windows.advance_ms not in (0, self._windows.size_ms)
        taken = rows if not hopping and len(index) == len(rows) else rows.take(index)
        if hopping:
            taken = replace(taken, place=taken.place.extend(_numbers(index)))
        return taken.with_keys(WindowedColumn(taken.keys, starts, ends))


def _numbers(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number equal neighbours 0, 1, 2, ..."""
    fresh = np.flatnonzero(np.diff(index, prepend=-1))
    return np.arange(len(index)) - np.repeat(fresh, np.diff(fresh, append=len(index)))
