"""Sliding windows: Kafka's ``KStreamSlidingWindowAggregate``.

Of a key, windows are kept for the different sets of records that lie within the time difference: the *left* window of a
record ends at its time, the *right* window starts one millisecond after it. A row changes every window around its time,
and makes its own left window, the right window of the record before it, and its own right window, as far as there are
records in them. The aggregates of new windows come from those of the neighbours, never from the records.

Over columns go counts and sums of keys whose rows come in order. Of such a key a row at time t, with d the time
difference, finds the right windows of the records from t - d on, makes that of the record just before it, and its own
left window. The value of a window is that of the store, plus the sum of the batch's rows from its start up to the
present one: a difference of two running sums. Keys with rows that come out of order, perhaps too late, or at one of the
odd distances are left to the row loop.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.runtime.aggregate.changes import ByKey, StoredWindows, WindowChangeList, WindowChanges, commit
from penstock.runtime.aggregate.windows import WindowOperator
from penstock.runtime.fold.columns import (
    KnownAggregation,
    RowGroups,
    few_by_row,
    group_keys,
    numbers_of,
    recognise,
    summands,
)
from penstock.runtime.fold.rows import initial, snapshot, step_of
from penstock.runtime.rows import FEW
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.definitions import Aggregation
    from penstock.topology.topology import Topology

__all__ = ["SlidingAggregate"]

_INT64_MAX = (1 << 63) - 1


class SlidingRuns:
    """The rows of one batch, sorted by key; rows of a key at the same time are a run.

    Args:
        rows: The rows.
        groups: The rows by key.
        stored: The keys' windows before the batch, by key and start.
        difference: The time difference in milliseconds.
        observed: The store's stream time before each row, at most.
    """

    def __init__(
        self, rows: Rows, groups: RowGroups, stored: StoredWindows, difference: int, observed: NDArray[np.int64]
    ) -> None:
        self._rows = rows
        self._stored = stored
        self._difference = difference
        self._order = order = groups.segments.order
        self._codes = codes = groups.segments.codes
        self._times = times = rows.timestamps[order]
        self._observed = observed[order]
        self._first_row = groups.segments.starts[codes]  # of the key
        starts_key = np.zeros(len(times), np.bool_)
        starts_key[groups.segments.starts] = True
        self._starts_run = starts_key.copy()
        self._starts_run[1:] |= np.diff(times) != 0
        self._run = np.cumsum(self._starts_run) - 1
        self._run_rows = np.flatnonzero(self._starts_run)
        self._run_times = times[self._run_rows]
        last = np.full(len(groups), -1, np.int64)  # the time of each key's last record before the batch
        np.maximum.at(last, stored.owners, stored.stamps)
        self._last = last[codes]
        previous = np.where(starts_key, -1, np.concatenate([np.full(1, -1), times[:-1]]))
        before_run = np.where(starts_key[self._run_rows], self._last[self._run_rows], previous[self._run_rows])
        self._previous = before_run[self._run]  # the time of the last record before the row's run
        self._continues = (self._run == self._run[self._first_row]) & (times == self._last)
        self._starts_key = starts_key
        low = int(min(times.min(), stored.starts.min() if len(stored.starts) else times.min())) - difference - 2
        self._base, self._span = low, int(times.max()) - low + 2
        self._fits = self._span * (len(groups) + 1) < 1 << 62
        if self._fits:
            self._find()

    def _at(self, codes: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return one number that sorts by key, then time."""
        return codes * self._span + (times - self._base)

    def _find(self) -> None:
        """Find where the runs and the stored windows around each row are."""
        codes, times, difference = self._codes, self._times, self._difference
        runs = self._at(codes[self._run_rows], self._run_times)
        self._first_run = np.searchsorted(runs, self._at(codes, times - difference))  # from the left window's start on
        stored = self._at(self._stored.owners, self._stored.starts)
        self._stored_from = np.searchsorted(stored, self._at(codes, times - difference), side="right")
        self._stored_to = np.searchsorted(stored, self._at(codes, times), side="right")
        self._hits_run = _holds(runs, self._at(codes, times - difference - 1))
        self._hits_start = _holds(stored, self._at(codes, times - difference))
        left = np.searchsorted(stored, self._at(codes, self._last - difference))
        there = np.minimum(left, max(len(stored) - 1, 0))
        self._knows_last = np.zeros(len(times), np.bool_)
        if len(stored):
            same = stored[there] == self._at(codes, self._last - difference)
            self._knows_last = same & (self._stored.stamps[there] == self._last)

    def simple_keys(self, keys: int, close_times: NDArray[np.int64], store: Any) -> NDArray[np.bool_]:
        """Return the keys for which `changes` equals the result of the row loop."""
        if not self._fits:
            return np.zeros(keys, np.bool_)
        times, difference, previous = self._times, self._difference, self._previous
        out_of_order = np.zeros(len(times), np.bool_)
        out_of_order[1:] = (np.diff(times) < 0) & ~self._starts_key[1:]
        near = (self._last >= 0) & (self._last >= times - difference)
        bad = (
            out_of_order
            | (times < difference)
            | (times < close_times[self._order])
            | (times < self._last)
            | (previous == times - difference - 1)
            | self._hits_run
            | (self._hits_start & ~self._continues)
            | (near & ~self._knows_last)
            | ((previous >= times - difference) & (previous - difference < store.visible_from(self._observed)))
            | ~store.is_live(times - difference, np.maximum(self._observed, times))
            | (self._continues & (times - difference < store.visible_from(self._observed)))
        )
        simple = np.ones(keys, np.bool_)
        simple[self._codes[bad]] = False
        return simple

    def changes(self, aggregation: KnownAggregation) -> WindowChanges | None:
        """Return all changes of the windows; None when these columns need the row loop."""
        if aggregation.kind not in ("count", "sum") or aggregation.start not in (None, 0):
            return None
        numbers, stored = summands(aggregation, self._rows), numbers_of(self._stored.values)
        if numbers is None or stored is None or numbers.dtype != np.int64 or stored.dtype != np.int64:
            return None  # differences of running sums are exact for integers alone
        largest, reach = (max(int(a.max()), -int(a.min())) if len(a) else 0 for a in (numbers, stored))
        if reach + largest * len(numbers) > _INT64_MAX:
            return None
        times, difference = self._times, self._difference
        values = numbers[self._order]
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
        of_runs = self._run - self._first_run
        of_last = (self._last >= times - difference) & (self._last < times)
        of_last &= self._last < self._times[self._first_row]  # else the batch has rows of that time
        of_stored = self._stored_to - self._stored_from
        counts = of_runs + of_last + of_stored + 1
        new_time = self._starts_run & ~self._continues
        creates = new_time & (of_runs + of_last > 0)  # the right window of the record before
        unsorted = np.empty_like(self._order)
        unsorted[self._order] = np.arange(len(times))
        index = np.repeat(np.arange(len(times)), counts[unsorted])
        at = unsorted[index]
        number = np.arange(len(index)) - np.repeat(np.cumsum(counts[unsorted]) - counts[unsorted], counts[unsorted])
        left = number == counts[at] - 1
        created = creates[at] & (number == counts[at] - 2)
        number = np.where(created, 0, number + creates[at])  # which one in the order of starts, newest first
        run = self._run[at] - 1 - number
        is_run = ~left & (number < of_runs[at])
        is_last = ~left & ~is_run & (number < of_runs[at] + of_last[at])
        is_stored = ~(left | is_run | is_last)
        of_window = self._stored_to[at] - 1 - (number - of_runs[at] - of_last[at])
        run, of_window = np.where(is_run, run, 0), np.where(is_stored, of_window, 0)
        starts = np.where(is_run, self._run_times[run] + 1, np.where(is_last, self._last[at] + 1, 0))
        rows_of = np.append(self._run_rows, len(times))
        begins = np.where(is_run, rows_of[run + 1], self._first_row[at])
        part = np.zeros(len(index), np.int64)
        if len(stored):
            starts = np.where(is_stored, self._stored.starts[of_window], starts)
            part = np.where(is_stored, stored[of_window], part)
            joins = left & (self._last[at] >= times[at] - difference)  # with records from before the batch
            part = np.where(joins, stored[np.maximum(self._stored_from[at] - 1, 0)], part)
        starts = np.where(left, times[at] - difference, starts)
        begins = np.where(left, rows_of[self._first_run[at]], begins)
        news = part + sums[at + 1] - sums[begins]
        empty = created | (left & new_time[at] & (self._previous[at] < times[at] - difference))
        olds = pl.Series("", news - values[at])
        if empty.any():
            olds = olds.set(pl.Series(empty), aggregation.start)
        return WindowChanges(
            index,
            starts,
            starts + difference,
            Column.of_series(pl.Series("", news)),
            Column.of_series(olds),
            times[at],
            np.zeros(len(index), np.bool_),
        )


def _holds(numbers: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each wanted number is among these, which are sorted."""
    if not len(numbers):
        return np.zeros(len(candidates), np.bool_)
    is_held: NDArray[np.bool_] = (
        numbers[np.minimum(np.searchsorted(numbers, candidates), len(numbers) - 1)] == candidates
    )
    return is_held


class SlidingAggregate(WindowOperator):
    """The aggregation of each row in every window within the time difference of it."""

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
