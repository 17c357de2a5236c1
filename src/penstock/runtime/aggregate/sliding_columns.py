"""Sliding windows over columns: counts and sums of keys whose rows come in order.

Of such a key a row at time t, with d the time difference, finds the right windows of the records from t - d on, makes
that of the record just before it, and its own left window. The value of a window is that of the store, plus the
sum of the batch's rows from its start up to the present one: a difference of two running sums. Keys with rows that come
out of order, perhaps too late, or at one of the odd distances are left to the row loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.runtime.aggregate.changes import WindowChanges
from penstock.runtime.fold.columns import numbers_of, summands
from penstock.runtime.fold.recognise import KnownAggregation
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.aggregate.changes import StoredWindows
    from penstock.runtime.rows import Rows
    from penstock.runtime.tables.groups import RowGroups

__all__ = ["SlidingRuns"]

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

    def changes(self, known: KnownAggregation) -> WindowChanges | None:
        """Return all changes of the windows; None when these columns need the row loop."""
        if known.kind not in ("count", "sum") or known.start not in (None, 0):
            return None
        numbers, stored = summands(known, self._rows), numbers_of(self._stored.values)
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
            olds = olds.set(pl.Series(empty), known.start)
        return WindowChanges(
            index,
            starts,
            starts + difference,
            Column.of_series(pl.Series("", news)),
            Column.of_series(olds),
            times[at],
            np.zeros(len(index), np.bool_),
        )


def _holds(numbers: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each wanted number is among these, which are sorted."""
    if not len(numbers):
        return np.zeros(len(wanted), np.bool_)
    is_held: NDArray[np.bool_] = numbers[np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)] == wanted
    return is_held
