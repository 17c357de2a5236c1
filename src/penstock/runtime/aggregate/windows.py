"""The assignment of rows to hopping windows, and results once a window has closed: ``EmitStrategy.onWindowClose``.

With that strategy an operator checks for closed windows after each record, at most once per emit interval of wall-clock
time. Windows that have closed since the last check are read from the store and sent with the record that caused the
check.

Meanwhile stream time may have moved on by more than the retention of the store. With a cache nothing is lost by that:
the store holds the windows that no check has looked for yet. In Kafka the cache does so for time windows; the stores of
sessions and sliding windows have none, but there, too, the interval decides nothing but when a window is sent. Without
a cache, or with an interval of 0, which checks after each record, the rule is Kafka's: what has expired is lost.

A run until "latest" has no later record, so the interval does not apply: a batch checks after its last record, or,
where windows would be lost by then, after each one.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.runtime.batches_of_one import step_of_batches
from penstock.runtime.operator import Operator, RowStep
from penstock.runtime.rows import AFTER, Headers, Place, Rows
from penstock.runtime.tables import StoredTable, drop_null_keys
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn
from penstock.topology.operations.definitions import WindowedAggregate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.definitions import WindowSpec
    from penstock.topology.topology import Topology

__all__ = [
    "EMIT_INTERVAL",
    "FOREVER",
    "NO_TIME",
    "StreamAggregator",
    "WindowOperator",
    "last_emit_meta",
    "window_bounds",
]

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
    """The assignment of rows to windows; the operator's own stream time is carried from batch to batch."""

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


EMIT_INTERVAL = "__emit.interval.ms.kstreams.windowed.aggregation__"
_DEFAULT_INTERVAL_MS = 1000
_Ended = tuple[int, int, Any, Any, int]  # start, end, key, value, timestamp


def last_emit_meta(store: str) -> str:
    """Return the name of the number that is the time up to which closed windows were sent."""
    return f"{store}/last-emit-close-time"


class ClosedWindows:
    """The rows after which closed windows are sent, and the windows."""

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
        ended = self._ended_windows() if self.closes(now) else []
        place = Place((len(self._context.input_stream_times) - 1, AFTER), len(ended))
        return self._closed(place, None, ended)

    def emit(self, rows: Rows) -> Rows:
        """Return the closed windows, sent with the last of the rows; oldest first, then by key."""
        return self._send(rows, self._ended_windows())

    def _send(self, rows: Rows, ended: list[_Ended]) -> Rows:
        sender = rows.take(np.full(len(ended), len(rows) - 1, np.int64))
        return self._closed(sender.place, sender.headers, ended)

    def _closed(self, place: Place, headers: list[Headers] | None, ended: list[_Ended]) -> Rows:
        starts = np.array([start for start, *_ in ended], np.int64)
        ends = np.array([end for _, end, *_ in ended], np.int64)
        return Rows(
            place.extend(np.arange(len(ended))),
            np.array([stamp for *_, stamp in ended], np.int64),
            WindowedColumn(Column.of_items([key for _, _, key, _, _ in ended]), starts, ends),
            Column.of_items([value for *_, value, _ in ended]),
            headers,
            Column.nulls(len(ended)),
        )

    def _ended_windows(self) -> list[_Ended]:
        began = time.perf_counter()
        ended = self._closed_sessions() if self._windows.kind == "session" else self._closed_windows()
        seconds = time.perf_counter() - began
        self._context.sensor.on_emitted(self._context.task_id, self._name, len(ended), seconds)
        return ended

    def _closed_windows(self) -> list[_Ended]:
        store = self._context.store(self._store)
        serde = store.spec.key_serde
        entries = list(store.fetch_closed(*self._range))
        entries.sort(key=lambda entry: (entry[0].window.start, serde.serialize(entry[0].key)))
        return [(w.window.start, w.window.end, w.key, v.value, v.timestamp) for w, v in entries]

    def _closed_sessions(self) -> list[_Ended]:
        sessions = self._context.store(self._store).find_ended(*self._range)
        return [(s.window.start, s.window.end, s.key, value, s.window.end) for s, value in sessions]


def closed_windows(name: str, operation: WindowedAggregate, context: TaskContext) -> ClosedWindows | None:
    """Return what an aggregation needs to send closed windows; None when it sends every change."""
    if not operation.on_close:
        return None
    return ClosedWindows(name, operation, context)


class StreamAggregator(Operator):
    """An operator that aggregates a stream, windowed or not."""

    @abstractmethod
    def process(self, rows: Rows, parent: str) -> Rows:
        """Aggregate a batch; return the table's changes."""

    @abstractmethod
    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:
        """Add rows that have keys, given the stream time at each of them; return the table's changes."""


class WindowOperator(StreamAggregator):
    """The base of operators with windows, which send each change on, or a window's contents when it closes."""

    makes_many = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("WindowedAggregate", node.operation)
        self._name = node.name
        self._context = context
        self._operation = operation
        self._windows = WindowAssigner(node.name, operation.windows, operation.store, context)
        self._table = StoredTable(node, topology, context, on_close=operation.on_close)
        self._closed = closed_windows(node.name, operation, context)
        self.runs_without_rows = operation.idle_ms is not None
        self.caches_rows = self._table.caching

    def row_step(self) -> RowStep | None:
        return step_of_batches(self, self._context)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, stream_times = self._windows.observe(rows)
        if self._closed is None:
            return self.add(rows, stream_times)
        return self._closed.run(rows, stream_times, self.add, self._checking(rows, stream_times))

    def _checking(self, rows: Rows, stream_times: NDArray[np.int64]) -> NDArray[np.bool_] | None:  # noqa: ARG002
        """Return the mask of rows that check for closed windows; None: all."""
        return None
