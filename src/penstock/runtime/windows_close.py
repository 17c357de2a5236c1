"""Results once a window has closed: Kafka's ``EmitStrategy.onWindowClose``.

Whether windows have closed is looked at after each record, at most once per emit interval of wall-clock time. What has
closed since the last look is read from the store and sent with the record that caused the look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.rows import Rows
from penstock.runtime.windows import NO_TIME, window_bounds
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import TaskContext
    from penstock.topology.windows import WindowSpec

__all__ = ["EMIT_INTERVAL", "ClosedWindows"]

EMIT_INTERVAL = "__emit.interval.ms.kstreams.windowed.aggregation__"
_DEFAULT_INTERVAL_MS = 1000


class ClosedWindows:
    """Finds the rows after which closed windows leave, and the windows."""

    def __init__(self, windows: WindowSpec, store: str, context: TaskContext) -> None:
        self._windows = windows
        self._store = store
        self._context = context
        self._last_meta = f"{store}/last-emit-close-time"
        self._next_meta = f"{store}/next-emit-time"
        interval = context.config.get(EMIT_INTERVAL)
        self._interval_ms = _DEFAULT_INTERVAL_MS if interval is None else int(interval)
        self._range = (0, 0)

    def slices(self, rows: Rows, stream_times: NDArray[np.int64]) -> Iterator[tuple[Rows, NDArray[np.int64], bool]]:
        """Cuts the rows after each one that lets windows leave: (rows, stream times, whether windows leave then)."""
        start = 0
        for row in self._looks(stream_times):
            if self._closes(int(stream_times[row])):
                stop = row + 1
                yield rows.take(np.arange(start, stop)), stream_times[start:stop], True
                start = stop
        if start < len(rows):
            yield (rows if start == 0 else rows.take(np.arange(start, len(rows)))), stream_times[start:], False

    def _looks(self, stream_times: NDArray[np.int64]) -> list[int]:
        """The rows after which the operator looks, of those where stream time has moved on."""
        now = self._context.wall_clock_ms
        if not len(stream_times) or now < self._context.get_meta(self._next_meta, 0):
            return []
        self._context.put_meta(self._next_meta, now + self._interval_ms)
        if self._interval_ms > 0:
            return [0]  # the wall clock stands still during a batch
        moved = np.diff(stream_times, prepend=NO_TIME - 1) > 0
        return np.flatnonzero(moved).tolist()

    def _closes(self, stream_time: int) -> bool:
        """Whether windows may have closed since the last look; notes the range of their starts."""
        size = self._windows.size_ms
        close_time = stream_time - self._windows.grace_ms
        last = self._context.get_meta(self._last_meta, NO_TIME)
        upper = close_time - size
        if (last != NO_TIME and last >= close_time) or upper < 0:
            return False
        lower = 0
        if last != NO_TIME:
            lower = max(0, last - size) + 1
            if self._starts(upper) == self._starts(lower - 1):
                return False
        self._range = (lower, upper)
        self._context.put_meta(self._last_meta, close_time)
        return True

    def _starts(self, time: int) -> list[int]:
        starts: list[int] = window_bounds(self._windows, np.array([time], np.int64))[1].tolist()
        return starts

    def emit(self, rows: Rows) -> Rows:
        """The closed windows, sent with the last of the rows; oldest first, then by key."""
        store = self._context.store(self._store)
        serde = store.spec.key_serde
        found = [(w.window.start, serde.serialize(w.key), w.key, v) for w, v in store.fetch_all(*self._range)]
        found.sort(key=lambda entry: entry[:2])
        starts = np.array([entry[0] for entry in found], np.int64)
        sender = rows.take(np.full(len(found), len(rows) - 1, np.int64))
        return Rows(
            sender.place.extend(np.arange(len(found))),
            np.array([entry[3].timestamp for entry in found], np.int64),
            WindowedColumn(Column.of_items([entry[2] for entry in found]), starts, starts + self._windows.size_ms),
            Column.of_items([entry[3].value for entry in found]),
            sender.headers,
            Column.nulls(len(found)),
        )
