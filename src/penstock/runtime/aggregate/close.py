"""Results once a window has closed: Kafka's ``EmitStrategy.onWindowClose``.

The operator checks for closed windows after each record, at most once per emit interval of wall-clock time. Windows
that have closed since the last check are read from the store and sent with the record that caused the check.

Meanwhile stream time may have moved on by more than the retention of the store. With a cache nothing is lost by that:
the store holds the windows that no check has looked for yet. In Kafka the cache does so for time windows; the stores of
sessions and sliding windows have none, but there, too, the interval decides nothing but when a window is sent. Without
a cache, or with an interval of 0, which checks after each record, the rule is Kafka's: what has expired is lost.

A run until "latest" has no later record, so the interval does not apply: a batch checks after its last record, or,
where windows would be lost by then, after each one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.aggregate.window_assignment import NO_TIME, stream_time_meta, window_bounds
from penstock.runtime.record import Headers
from penstock.runtime.rows import AFTER, Place, Rows
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.operations.base import WindowedAggregate

__all__ = ["EMIT_INTERVAL", "ClosedWindows", "closed_windows", "last_emit_meta"]

EMIT_INTERVAL = "__emit.interval.ms.kstreams.windowed.aggregation__"
_DEFAULT_INTERVAL_MS = 1000
_Found = tuple[int, int, Any, Any, int]  # start, end, key, value, timestamp


def last_emit_meta(store: str) -> str:
    """Return the name of the number that is the time up to which closed windows were sent."""
    return f"{store}/last-emit-close-time"


class ClosedWindows:
    """Finds the rows after which closed windows are sent, and the windows."""

    def __init__(self, name: str, operation: WindowedAggregate, context: TaskContext) -> None:
        self._name = name
        windows, store, idle_ms = operation.windows, operation.store, operation.idle_ms
        self._windows = windows
        self._idle_ms = idle_ms
        self._store = store
        self._context = context
        self._last_meta = last_emit_meta(store)
        self._next_meta = f"{store}/next-emit-time"
        interval = context.config.get(EMIT_INTERVAL)
        self._interval_ms = _DEFAULT_INTERVAL_MS if interval is None else int(interval)
        spec = context.topology.stores[store]
        waits = self._interval_ms > 0 and windows.kind in ("session", "sliding")
        self._holds = context.caching and (waits or context.caches(spec))
        self._stream_time_meta = stream_time_meta(store)
        self._heard_meta = f"{store}/last-row-wall-clock"
        self._range = (0, 0)

    def slices(
        self, rows: Rows, stream_times: NDArray[np.int64], checking: NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[Rows, NDArray[np.int64], bool]]:
        """Cut the rows after each one that releases windows: (rows, stream times, whether windows are sent then).

        ``checking`` marks the rows after which the operator checks at all; None for every one.
        """
        start = 0
        for row in self._checks(stream_times, checking):
            if self.closes(int(stream_times[row])):
                stop = row + 1
                yield rows.take(np.arange(start, stop)), stream_times[start:stop], True
                start = stop
        if start < len(rows):
            yield (rows if start == 0 else rows.take(np.arange(start, len(rows)))), stream_times[start:], False

    def _checks(self, stream_times: NDArray[np.int64], checking: NDArray[np.bool_] | None) -> list[int]:
        """Return the rows after which the operator checks, of those where stream time has moved since the last one."""
        index = np.arange(len(stream_times)) if checking is None else np.flatnonzero(checking)
        if not len(index):
            return []
        interval_ms = self._interval_ms
        if self._context.until_latest and interval_ms > 0:
            if self._holds:
                return [int(index[-1])]
            interval_ms = 0
        now = self._context.wall_clock_ms
        if interval_ms > 0 and now < self._context.get_meta(self._next_meta, 0):
            return []
        self._context.put_meta(self._next_meta, now + interval_ms)
        if interval_ms > 0:
            return [int(index[0])]  # the wall clock stands still during a batch
        moved = np.diff(stream_times[index], prepend=NO_TIME - 1) > 0
        looks: list[int] = index[moved].tolist()
        return looks

    def closes(self, stream_time: int) -> bool:
        """Return whether windows may have closed since the last check, and note the range of those that have."""
        close_time = stream_time - self._windows.closes_after_ms
        last = self._context.get_meta(self._last_meta, NO_TIME)
        if last != NO_TIME and last >= close_time:
            return False
        bounds = self._bounds(last, close_time)
        if bounds is None or bounds[1] < 0:
            return False
        self._range = bounds
        self._context.put_meta(self._last_meta, close_time)
        return True

    def _first_open(self) -> int:
        """Return the first start of the windows (of sessions: end) that no check has looked for."""
        last = self._context.get_meta(self._last_meta, NO_TIME)
        return max(0, last if self._windows.kind == "session" else last - self._windows.size_ms)

    def _bounds(self, last: int, close_time: int) -> tuple[int, int] | None:
        """Return the first and the last start of the windows that have closed (of sessions: end); None for none."""
        size, since = self._windows.size_ms, max(0, last)
        if self._windows.kind == "session":
            return (since, close_time - 1) if close_time > since else None
        if self._windows.kind == "sliding":
            return max(0, since - size), close_time - size - 1
        upper = close_time - size
        if last == NO_TIME:
            return 0, upper
        lower = max(0, last - size) + 1
        return (lower, upper) if self._starts(upper) != self._starts(lower - 1) else None

    def _starts(self, time: int) -> list[int]:
        starts: list[int] = window_bounds(self._windows, np.array([time], np.int64))[1].tolist()
        return starts

    def run(
        self,
        rows: Rows,
        stream_times: NDArray[np.int64],
        add: Callable[[Rows, NDArray[np.int64]], object],
        checking: NDArray[np.bool_] | None = None,
    ) -> Rows:
        """Add the rows to their windows by ``add``; return the closed windows, each with the row that releases it."""
        self._context.store(self._store).hold(self._first_open() if self._holds else None)
        if self._idle_ms is not None:
            if not len(rows):
                return self._when_idle(rows)
            self._context.put_meta(self._heard_meta, self._context.wall_clock_ms)
        leaving: list[Rows] = []
        for part, times, closes in self.slices(rows, stream_times, checking):
            add(part, times)
            if closes:
                leaving.append(self.emit(part))
        return Rows.merge(leaving) if leaving else self._send(rows, [])

    def _when_idle(self, rows: Rows) -> Rows:
        """Return all windows once no row has come for the idle time; the operator's stream time moves past them."""
        heard = self._context.get_meta(self._heard_meta, NO_TIME)
        assert self._idle_ms is not None  # noqa: S101 - the caller has looked
        if heard == NO_TIME or self._context.wall_clock_ms - heard < self._idle_ms:
            return self._send(rows, [])
        self._context.put_meta(self._heard_meta, NO_TIME)
        size = 0 if self._windows.kind == "session" else self._windows.size_ms
        now = self._context.get_meta(self._stream_time_meta, NO_TIME) + size + self._windows.closes_after_ms + 1
        self._context.put_meta(self._stream_time_meta, now)
        ended = self._found() if self.closes(now) else []
        place = Place((len(self._context.input_stream_times) - 1, AFTER), len(ended))
        return self._closed(place, None, ended)

    def emit(self, rows: Rows) -> Rows:
        """Return the closed windows, sent with the last of the rows; oldest first, then by key."""
        return self._send(rows, self._found())

    def _send(self, rows: Rows, found: list[_Found]) -> Rows:
        sender = rows.take(np.full(len(found), len(rows) - 1, np.int64))
        return self._closed(sender.place, sender.headers, found)

    def _closed(self, place: Place, headers: list[Headers] | None, found: list[_Found]) -> Rows:
        starts = np.array([start for start, *_ in found], np.int64)
        ends = np.array([end for _, end, *_ in found], np.int64)
        return Rows(
            place.extend(np.arange(len(found))),
            np.array([stamp for *_, stamp in found], np.int64),
            WindowedColumn(Column.of_items([key for _, _, key, _, _ in found]), starts, ends),
            Column.of_items([value for *_, value, _ in found]),
            headers,
            Column.nulls(len(found)),
        )

    def _found(self) -> list[_Found]:
        began = time.perf_counter()
        ended = self._closed_sessions() if self._windows.kind == "session" else self._closed_windows()
        seconds = time.perf_counter() - began
        self._context.sensor.on_emitted(self._context.task_id, self._name, len(ended), seconds)
        return ended

    def _closed_windows(self) -> list[_Found]:
        store = self._context.store(self._store)
        serde = store.spec.key_serde
        entries = list(store.fetch_closed(*self._range))
        entries.sort(key=lambda entry: (entry[0].window.start, serde.serialize(entry[0].key)))
        return [(w.window.start, w.window.end, w.key, v.value, v.timestamp) for w, v in entries]

    def _closed_sessions(self) -> list[_Found]:
        sessions = self._context.store(self._store).find_ended(*self._range)
        return [(s.window.start, s.window.end, s.key, value, s.window.end) for s, value in sessions]


def closed_windows(name: str, operation: WindowedAggregate, context: TaskContext) -> ClosedWindows | None:
    """Return what an aggregation needs to send closed windows; None when it sends every change."""
    if not operation.on_close:
        return None
    return ClosedWindows(name, operation, context)
