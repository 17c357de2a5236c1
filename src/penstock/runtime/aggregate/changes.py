"""The changes that a batch makes to sliding and session windows: several for a row, then state and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.runtime.fold.columns import FoldResult, RowGroups, group_windows
from penstock.runtime.rows import Rows
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.fold.columns import KnownAggregation
    from penstock.runtime.tables import StoredTable

__all__ = ["ByKey", "StoredWindows", "WindowChangeList", "WindowChanges", "commit"]


class WindowChangeList:
    """A list of changes that is filled one by one, to become `WindowChanges`."""

    __slots__ = ("ends", "lost", "news", "olds", "rows", "stamps", "starts")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.news: list[Any] = []
        self.olds: list[Any] = []
        self.stamps: list[int] = []
        self.lost: list[bool] = []

    def add(self, row: int, window: tuple[int, int], new: Any, old: Any, stamp: int, *, lost: bool = False) -> None:
        """Append one change."""
        self.rows.append(row)
        self.starts.append(window[0])
        self.ends.append(window[1])
        self.news.append(new)
        self.olds.append(old)
        self.stamps.append(stamp)
        self.lost.append(lost)

    def columns(self) -> WindowChanges:
        """Return the changes as columns."""
        return WindowChanges(
            np.array(self.rows, np.int64),
            np.array(self.starts, np.int64),
            np.array(self.ends, np.int64),
            Column.of_items(self.news),
            Column.of_items(self.olds),
            np.array(self.stamps, np.int64),
            np.array(self.lost, np.bool_),
        )


@dataclass(frozen=True, slots=True)
class WindowChanges:
    """Changes of windows as columns: the row (ascending), the window, its old and new value, and its timestamp.

    ``lost`` marks changes that come too late for the store: they go downstream, but are not stored.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    news: Column
    olds: Column
    stamps: NDArray[np.int64]
    lost: NDArray[np.bool_]

    def moved(self, index: NDArray[np.int64]) -> WindowChanges:
        """Return the same changes for rows that were taken from others at these positions."""
        return replace(self, rows=index[self.rows])

    def merge(self, other: WindowChanges) -> WindowChanges:
        """Return the changes of both, by row; no row is in both."""
        rows = np.concatenate([self.rows, other.rows])
        order = np.argsort(rows, kind="stable")
        return WindowChanges(
            rows[order],
            np.concatenate([self.starts, other.starts])[order],
            np.concatenate([self.ends, other.ends])[order],
            Column.concat([self.news, other.news]).take(order),
            Column.concat([self.olds, other.olds]).take(order),
            np.concatenate([self.stamps, other.stamps])[order],
            np.concatenate([self.lost, other.lost])[order],
        )

    def of(self, rows: Rows) -> Rows:
        """Return one row for each change."""
        index = self.rows
        fresh = np.flatnonzero(np.diff(index, prepend=-1))
        number = np.arange(len(index)) - np.repeat(fresh, np.diff(fresh, append=len(index)))
        return Rows(
            rows.place.take(index).extend(number),
            rows.timestamps[index],
            WindowedColumn(rows.keys.take(index), self.starts, self.ends),
            self.news,
            None if rows.headers is None else [rows.headers[i] for i in index.tolist()],
            self.olds,
        )


@dataclass(frozen=True, slots=True)
class StoredWindows:
    """The windows that the store held before the batch, as far as the batch may touch them, by key and time.

    ``owners`` are the numbers of the keys.
    """

    owners: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    values: Column
    stamps: NDArray[np.int64]

    def of_keys(self, key_mask: NDArray[np.bool_], numbers: NDArray[np.int64]) -> StoredWindows:
        """Return the windows of the wanted keys, which get these numbers."""
        mask = key_mask[self.owners]
        return StoredWindows(
            numbers[self.owners[mask]], self.starts[mask], self.ends[mask], self.values.filter(mask), self.stamps[mask]
        )

    def forgetting(self, mask: NDArray[np.bool_]) -> StoredWindows:
        """Return the same windows with unknown values where the mask is true."""
        if not mask.any():
            return self
        values = self.values.take_or_null(np.where(mask, -1, np.arange(len(mask))))
        return replace(self, values=values, stamps=np.where(mask, -1, self.stamps))


class Runs(Protocol):
    """The rows of a batch, prepared for aggregation by column."""

    def changes(self, aggregation: KnownAggregation) -> WindowChanges | None:
        """Return all changes of windows; None when these columns need the row loop."""
        ...


@dataclass(frozen=True, slots=True)
class ByKey:
    """Two ways through one batch: each key takes the faster one that is exact for it.

    Attributes:
        rows: The rows.
        groups: The rows by key.
        stored: The keys' windows before the batch.
        runs: Prepares rows for aggregation by column: rows, groups, stored windows, positions in ``rows``.
        loop: The row loop: rows, their keys' numbers, positions in ``rows``, and the store's stream time before each
            row, as far as other rows move it.
        by_end: Whether the store's time is that of ends, not starts.
    """

    rows: Rows
    groups: RowGroups
    stored: StoredWindows
    runs: Callable[[Rows, RowGroups, StoredWindows, NDArray[np.int64]], Runs]
    loop: Callable[[Rows, NDArray[np.int64], NDArray[np.int64], list[int]], WindowChanges]
    by_end: bool

    def by_rows(self) -> WindowChanges:
        """Return the changes of all keys by the row loop."""
        return self.loop(self.rows, self.groups.codes, np.arange(len(self.rows)), [-1] * len(self.rows))

    def changes(self, aggregation: KnownAggregation, whole: Runs, simple: NDArray[np.bool_]) -> WindowChanges:
        """Return the changes of simple keys by column and of the others by row; ``whole`` are all rows, prepared."""
        if not simple.any():
            return self.by_rows()
        if simple.all():
            changes = whole.changes(aggregation)
            return self.by_rows() if changes is None else changes
        codes = self.groups.codes
        index, others = np.flatnonzero(simple[codes]), np.flatnonzero(~simple[codes])
        numbers = np.cumsum(simple) - 1
        part = RowGroups.of_codes(numbers[codes[index]])
        changes = self.runs(self.rows.take(index), part, self.stored.of_keys(simple, numbers), index).changes(
            aggregation
        )
        if changes is None:
            return self.by_rows()
        changes = changes.moved(index)
        moved = np.full(len(self.rows) + 1, -1, np.int64)
        np.maximum.at(moved, changes.rows + 1, changes.ends if self.by_end else changes.starts)
        before = np.maximum.accumulate(moved)[others].tolist()
        return changes.merge(self.loop(self.rows.take(others), codes[others], others, before).moved(others))


def commit(
    table: StoredTable,
    changes: Rows,
    changed: WindowChanges,
    codes: NDArray[np.int64],
    stored: StoredWindows,
) -> Rows:
    """Write the resulting windows to the store; return the changes that go downstream.

    Windows that come and go within the batch are not written, but they move the store's time.

    Args:
        table: The table of the windows.
        changes: ``changed`` as rows, with the timestamps that tombstones get.
        changed: The changes.
        codes: A number for the key of each change, as in ``stored``.
        stored: The windows before the batch.
    """
    if not len(changes):
        return changes
    count = len(changes)
    both = group_windows(
        np.concatenate([codes, stored.owners]),
        np.concatenate([changed.starts, stored.starts]),
        np.concatenate([changed.ends, stored.ends]),
    )
    touched = int(both.codes[:count].max()) + 1  # numbers count up: those of windows without a change come last
    groups = RowGroups(both.codes[:count], both.first[:touched])
    last = groups.last_rows()
    final = changed.news.take(last)
    if changed.lost.any():
        final = final.take_or_null(np.where(changed.lost[last], -1, np.arange(touched)))
    position = np.full(touched, -1, np.int64)
    mine = both.codes[count:] < touched
    position[both.codes[count:][mine]] = np.flatnonzero(mine)
    before = None
    if table.needs_before(final):
        values = stored.values.take_or_null(position) if len(stored.owners) else Column.nulls(touched)
        before = values, np.where(position < 0, -1, np.append(stored.stamps, -1)[position])
    passing = final.null_mask() & (position < 0)
    if table.logs_passing:
        passing &= changed.lost[last]
    stamps = changed.stamps
    fold = FoldResult(final, stamps[last], np.where(passing, -1, last), None, changed.news, changed.olds, stamps)
    result = table.commit(changes, groups, fold, before)
    table.store.observe(int((changed.ends if table.store.spec.kind == "session" else changed.starts).max()))
    return result
