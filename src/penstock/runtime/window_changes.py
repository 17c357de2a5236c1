"""What sliding and session windows do with a batch: several changes of windows for a row, then state and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.runtime.rows import Rows
from penstock.runtime.tables_groups import Groups, group_windows
from penstock.runtime.tables_store import Fold
from penstock.runtime.views import take_or_null
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.aggregate_recognised import Known
    from penstock.runtime.tables_store import StoredTable

__all__ = ["ByKey", "ChangeColumns", "Changes", "StoredWindows", "commit"]


class Changes:
    """`ChangeColumns` while they are made, one by one."""

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
        """One more change."""
        self.rows.append(row)
        self.starts.append(window[0])
        self.ends.append(window[1])
        self.news.append(new)
        self.olds.append(old)
        self.stamps.append(stamp)
        self.lost.append(lost)

    def columns(self) -> ChangeColumns:
        """The same as columns."""
        return ChangeColumns(
            np.array(self.rows, np.int64),
            np.array(self.starts, np.int64),
            np.array(self.ends, np.int64),
            Column.of_items(self.news),
            Column.of_items(self.olds),
            np.array(self.stamps, np.int64),
            np.array(self.lost, np.bool_),
        )


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Of which row (ascending), and which window's value from what to what, with what time.

    ``lost`` are changes that come too late for the store: they go downstream, but leave nothing behind.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    news: Column
    olds: Column
    stamps: NDArray[np.int64]
    lost: NDArray[np.bool_]

    def moved(self, index: NDArray[np.int64]) -> ChangeColumns:
        """The same for rows that were taken from others at these positions."""
        return replace(self, rows=index[self.rows])

    def merge(self, other: ChangeColumns) -> ChangeColumns:
        """The changes of both by row; no row is in both."""
        rows = np.concatenate([self.rows, other.rows])
        order = np.argsort(rows, kind="stable")
        return ChangeColumns(
            rows[order],
            np.concatenate([self.starts, other.starts])[order],
            np.concatenate([self.ends, other.ends])[order],
            Column.concat([self.news, other.news]).take(order),
            Column.concat([self.olds, other.olds]).take(order),
            np.concatenate([self.stamps, other.stamps])[order],
            np.concatenate([self.lost, other.lost])[order],
        )

    def of(self, rows: Rows) -> Rows:
        """One row for each change."""
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
    """What the store held before the batch of all windows that the batch may touch, by key and time.

    ``owners`` are the numbers of the keys.
    """

    owners: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    values: Column
    stamps: NDArray[np.int64]

    def of_keys(self, wanted: NDArray[np.bool_], numbers: NDArray[np.int64]) -> StoredWindows:
        """Those of the wanted keys, which get these numbers."""
        mask = wanted[self.owners]
        return StoredWindows(
            numbers[self.owners[mask]], self.starts[mask], self.ends[mask], self.values.filter(mask), self.stamps[mask]
        )

    def forgetting(self, mask: NDArray[np.bool_]) -> StoredWindows:
        """The same, but where the mask is true the value is not known any more."""
        if not mask.any():
            return self
        values = take_or_null(self.values, np.where(mask, -1, np.arange(len(mask))))
        return replace(self, values=values, stamps=np.where(mask, -1, self.stamps))


class Runs(Protocol):
    """The rows of a batch, made ready for the way over columns."""

    def changes(self, known: Known) -> ChangeColumns | None:
        """All that happens to the windows; None when these columns need the row loop."""
        ...


@dataclass(frozen=True, slots=True)
class ByKey:
    """The two ways of one batch, of which each key takes the faster one that is exact for it.

    Attributes:
        rows: The rows.
        groups: The rows by key.
        stored: The keys' windows before the batch.
        runs: Makes rows ready for the way over columns: rows, groups, stored windows, positions in ``rows``.
        loop: The row loop: rows, their keys' numbers, positions in ``rows``, and the store's stream time before each
            row, as far as it is moved by other rows.
        by_end: Whether the store's time is that of ends, not starts.
    """

    rows: Rows
    groups: Groups
    stored: StoredWindows
    runs: Callable[[Rows, Groups, StoredWindows, NDArray[np.int64]], Runs]
    loop: Callable[[Rows, NDArray[np.int64], NDArray[np.int64], list[int]], ChangeColumns]
    by_end: bool

    def by_rows(self) -> ChangeColumns:
        """All by the row loop."""
        return self.loop(self.rows, self.groups.codes, np.arange(len(self.rows)), [-1] * len(self.rows))

    def changes(self, known: Known, whole: Runs, simple: NDArray[np.bool_]) -> ChangeColumns:
        """The simple keys over columns, the others by the row loop; ``whole`` are all rows made ready."""
        if not simple.any():
            return self.by_rows()
        if simple.all():
            changes = whole.changes(known)
            return self.by_rows() if changes is None else changes
        codes = self.groups.codes
        index, others = np.flatnonzero(simple[codes]), np.flatnonzero(~simple[codes])
        numbers = np.cumsum(simple) - 1
        part = Groups.of_codes(numbers[codes[index]])
        changes = self.runs(self.rows.take(index), part, self.stored.of_keys(simple, numbers), index).changes(known)
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
    changed: ChangeColumns,
    codes: NDArray[np.int64],
    stored: StoredWindows,
) -> Rows:
    """Writes what the changes come to, and gives those that go downstream.

    Windows that come and go within the batch are not written, but they move the store's time.

    Args:
        table: The table of the windows.
        changes: ``changed`` as rows, with the timestamps that tombstones get.
        changed: The changes.
        codes: A number for the key of each change, as in ``stored``.
        stored: What was there before the batch.
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
    groups = Groups(both.codes[:count], both.first[:touched])
    last = groups.last_rows()
    final = changed.news.take(last)
    if changed.lost.any():
        final = take_or_null(final, np.where(changed.lost[last], -1, np.arange(touched)))
    position = np.full(touched, -1, np.int64)
    mine = both.codes[count:] < touched
    position[both.codes[count:][mine]] = np.flatnonzero(mine)
    before = None
    if table.needs_before(final):
        values = take_or_null(stored.values, position) if len(stored.owners) else Column.nulls(touched)
        before = values, np.where(position < 0, -1, np.append(stored.stamps, -1)[position])
    passing = final.null_mask() & (position < 0)
    stamps = changed.stamps
    fold = Fold(final, stamps[last], np.where(passing, -1, last), None, changed.news, changed.olds, stamps)
    result = table.commit(changes, groups, fold, before)
    table.store.observe(int((changed.ends if table.store.spec.kind == "session" else changed.starts).max()))
    return result
