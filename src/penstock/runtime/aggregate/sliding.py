"""Sliding windows: Kafka's ``KStreamSlidingWindowAggregate``.

Of a key, windows are kept for the different sets of records that lie within the time difference: the *left* window of a
record ends at its time, the *right* window starts one millisecond after it. A row changes every window around its time,
and makes its own left window, the right window of the record before it, and its own right window, as far as there are
records in them. The aggregates of new windows come from those of the neighbours, never from the records.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.aggregate.changes import ByKey, StoredWindows, WindowChangeList, WindowChanges, commit
from penstock.runtime.aggregate.sliding_columns import SlidingRuns
from penstock.runtime.aggregate.windowed import WindowOperator
from penstock.runtime.fold.recognise import few_by_row, recognise
from penstock.runtime.fold.rows import initial, snapshot, step_of
from penstock.runtime.rows import FEW
from penstock.runtime.tables.groups import RowGroups, group_keys
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.base import Aggregation
    from penstock.topology.topology import Topology

__all__ = ["SlidingAggregate"]


class SlidingAggregate(WindowOperator):
    """Adds each row to every window within the time difference of it."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        super().__init__(node, topology, context)
        self._difference = self._operation.windows.size_ms
        self._known = recognise(self._operation.aggregation)
        self._few_by_row = few_by_row(self._operation.aggregation, self._known)

    def process(self, rows: Rows, parent: str) -> Rows:
        null = rows.keys.null_mask() | rows.values.null_mask()
        if null.any():
            self._context.drop_rows(self._name, rows, np.flatnonzero(null), "null key or value")
            rows = rows.filter(~null)
        return super().process(rows, parent)

    def _checking(self, rows: Rows, stream_times: NDArray[np.int64]) -> NDArray[np.bool_]:
        times, close_times = rows.timestamps, stream_times - self._operation.windows.grace_ms
        checking: NDArray[np.bool_] = (times >= self._difference) & (times + self._difference >= close_times)
        return checking

    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:
        """Add rows that have keys; return the changes."""
        if not len(rows):
            return replace(rows, olds=Column.nulls(0))
        groups = group_keys(rows.keys, self._table.key_serde)
        stored = self._load(rows, groups)
        close_times = stream_times - self._operation.windows.grace_ms
        changes = self._changes(rows, groups, stored, close_times)
        store = self._table.store
        observed = np.maximum.accumulate(np.maximum(changes.starts, store.observed_stream_time))
        lost = ~store.is_live(changes.starts, observed)  # in a cogroup one stream may be behind the others
        if lost.any():
            self._context.drop(self._name, int(lost.sum()), "the store keeps no window that old")
            changes = replace(changes, lost=lost)
        committed = commit(self._table, changes.of(rows), changes, groups.codes[changes.rows], stored)
        store.take_dropped()  # counted change by change already
        return committed

    def _changes(
        self, rows: Rows, groups: RowGroups, stored: StoredWindows, close_times: NDArray[np.int64]
    ) -> WindowChanges:
        store = self._table.store
        # No window starts later than a millisecond after a row.
        before = np.maximum.accumulate(np.append(store.observed_stream_time, rows.timestamps[:-1] + 1))

        def runs(some: Rows, keys: RowGroups, windows: StoredWindows, index: NDArray[np.int64]) -> SlidingRuns:
            return SlidingRuns(some, keys, windows, self._difference, before[index])

        def loop(some: Rows, codes: NDArray[np.int64], index: NDArray[np.int64], observed: list[int]) -> WindowChanges:
            one = _SlidingLoop(self._operation.aggregation, self._difference, self._name, self._context, store)
            return one.run(some, codes.tolist(), _by_key(stored), close_times[index].tolist(), observed).columns()

        ways = ByKey(rows, groups, stored, runs, loop, by_end=False)
        if self._known is None or self._known.kind not in ("count", "sum") or (self._few_by_row and len(rows) <= FEW):
            return ways.by_rows()
        whole = runs(rows, groups, stored, np.arange(len(rows)))
        return ways.changes(self._known, whole, whole.simple_keys(len(groups), close_times, store))

    def _load(self, rows: Rows, groups: RowGroups) -> StoredWindows:
        """Return the windows of each group that a row of the batch may touch or look at."""
        times, segments = rows.timestamps[groups.segments.order], groups.segments
        earliest = np.minimum.reduceat(times, segments.starts)
        latest = np.maximum.reduceat(times, segments.starts)
        owners, starts, values, stamps = self._table.store.fetch_many(
            rows.keys.take(groups.first), np.maximum(earliest - 2 * self._difference, 0), latest + 1
        )
        return StoredWindows(owners, starts, starts + self._difference, values, stamps)


def _by_key(stored: StoredWindows) -> defaultdict[int, _Windows]:
    """Return key -> its windows."""
    windows: defaultdict[int, _Windows] = defaultdict(_Windows)
    columns = (stored.owners.tolist(), stored.starts.tolist(), stored.values.items(), stored.stamps.tolist())
    for owner, start, value, stamp in zip(*columns, strict=True):
        windows[owner].put(start, value, stamp)
    return windows


class _Windows:
    """The windows of one key, by start."""

    __slots__ = ("starts", "values")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.values: dict[int, tuple[Any, int]] = {}  # start -> (aggregate, timestamp)

    def put(self, start: int, value: Any, stamp: int) -> None:
        if value is None:
            if self.values.pop(start, None) is not None:
                self.starts.remove(start)
            return
        if start not in self.values:
            insort(self.starts, start)
        self.values[start] = (value, stamp)


class _SlidingLoop:
    """The row loop: exact for every function, and the reference for aggregation by column."""

    def __init__(self, aggregation: Aggregation, difference: int, node: str, context: TaskContext, store: Any) -> None:
        self._function = aggregation.aggregator
        self._start = initial(aggregation) if aggregation.kind != "reduce" else lambda: None
        self._step = step_of(aggregation)
        self._difference = difference
        self._node = node
        self._context = context
        self._store = store
        self._observed: int = store.observed_stream_time
        self._changes = WindowChangeList()
        self._late = 0

    def run(
        self, rows: Rows, codes: list[int], windows: Mapping[int, _Windows], close_times: list[int], observed: list[int]
    ) -> WindowChangeList:
        """Add all rows; return the changes in order. ``observed``: see `ByKey`."""
        columns = zip(codes, rows.keys.items(), rows.values.items(), rows.timestamps.tolist(), close_times, strict=True)
        for row, (code, key, value, time, close_time) in enumerate(columns):
            if time + self._difference < close_time:
                self._late += 1
                continue
            self._observed = max(self._observed, observed[row])
            update = self._updater(row, windows[code], key, value, time, close_time)
            try:
                if time < self._difference:
                    self._early(row, windows[code], time, update)
                else:
                    self._add(row, windows[code], time, update)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                self._context.failed(self._node, self._function, rows, row, error)
        if self._late:
            self._context.drop(self._node, self._late, "the window has closed")
        return self._changes

    def _updater(
        self, row: int, windows: _Windows, key: Any, value: Any, time: int, close_time: int
    ) -> Callable[[int, Any, int], None]:
        """Return a function that adds the row to a window (start, aggregate, timestamp), if that is still open."""
        step, difference = self._step, self._difference

        def update(start: int, old: Any, stamp: int) -> None:
            if start + difference < close_time:
                self._late += 1
                return
            new = step(key, value, snapshot(old))
            self._put(row, windows, start, new, old, time if old is None else max(time, stamp))

        return update

    def _put(self, row: int, windows: _Windows, start: int, new: Any, old: Any, stamp: int) -> None:
        windows.put(start, new, stamp)
        self._observed = max(self._observed, start)
        self._changes.add(row, (start, start + self._difference), new, old, stamp)

    def _seen(self, windows: _Windows, first: int, last: int) -> list[int]:
        """Return the starts from first to last that the store still shows."""
        first = max(first, self._store.visible_from(self._observed))
        starts = windows.starts
        return starts[bisect_right(starts, first - 1) : bisect_right(starts, last)]

    def _add(self, row: int, windows: _Windows, time: int, update: Callable[[int, Any, int], None]) -> None:
        difference, values = self._difference, windows.values
        right: tuple[Any, int] | None = None  # the initial value of the row's right window
        left: tuple[Any, int] | None = None
        has_left = has_right = False
        previous: int | None = None  # the time of the record before
        starts = self._seen(windows, max(0, time - 2 * difference), time + 1)
        for start in reversed(starts):
            window, end = values[start], start + difference
            if start == time + 1:
                has_right = True
            elif end > time:
                right = right or window
                update(start, *window)
            elif end == time:
                has_left = True
                update(start, *window)
                if window[1] >= time:
                    return
                previous = window[1]
            else:
                left, previous = window, window[1]
                break
        if previous is not None and previous + 1 + difference >= time and previous + 1 not in starts:
            update(previous + 1, self._start(), time)
        if not has_left:
            joins = left is not None and previous is not None and time - difference <= previous
            update(time - difference, left[0] if joins and left is not None else self._start(), time)
        if not has_right and right is not None and right[1] > time:
            self._put(row, windows, time + 1, right[0], None, right[1])

    def _early(self, row: int, windows: _Windows, time: int, update: Callable[[int, Any, int], None]) -> None:
        """Add a row whose left window would start before time 0: all these go into the window that starts there."""
        values = windows.values
        combined = right = None
        has_right = False
        previous: int | None = None
        starts = self._seen(windows, 0, time + 1)
        for start in starts:
            window = values[start]
            if start == 0:
                combined = window
                if window[1] < time:
                    previous = window[1]
            elif start <= time:
                right = window
                update(start, *window)
            else:
                has_right = True
        if right is None and combined is not None and combined[1] > time:
            right = combined
        if not has_right and right is not None and right[1] > time:
            self._put(row, windows, time + 1, right[0], None, right[1])
        if previous is not None and previous + 1 not in starts:
            update(previous + 1, self._start(), time)
        if combined is None:
            update(0, self._start(), time)
        else:
            update(0, *combined)
