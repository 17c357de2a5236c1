"""What sliding and session windows do with a batch: several changes of windows for a row, then state and results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.rows import Rows
from penstock.runtime.tables_groups import Groups, group_windows
from penstock.runtime.tables_store import Fold
from penstock.runtime.views import take_or_null
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.tables_store import StoredTable

__all__ = ["ChangeColumns", "Changes", "StoredWindows", "commit"]


class Changes:
    """`ChangeColumns` while they are made, one by one."""

    __slots__ = ("ends", "news", "olds", "rows", "stamps", "starts")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.news: list[Any] = []
        self.olds: list[Any] = []
        self.stamps: list[int] = []

    def __len__(self) -> int:
        return len(self.rows)

    def columns(self) -> ChangeColumns:
        """The same as columns."""
        return ChangeColumns(
            np.array(self.rows, np.int64),
            np.array(self.starts, np.int64),
            np.array(self.ends, np.int64),
            Column.of_items(self.news),
            Column.of_items(self.olds),
            np.array(self.stamps, np.int64),
        )


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """`Changes` as columns: of which row (ascending), and which window's value from what to what, with what time."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    news: Column
    olds: Column
    stamps: NDArray[np.int64]

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


def commit(
    table: StoredTable,
    changes: Rows,
    changed: ChangeColumns,
    codes: NDArray[np.int64],
    stored: StoredWindows,
    lost: NDArray[np.bool_] | None = None,
) -> Rows:
    """Writes what the changes come to, and gives those that go downstream.

    Windows that come and go within the batch are not written, but they move the store's time.

    Args:
        table: The table of the windows.
        changes: ``changed`` as rows, with the timestamps that tombstones get.
        changed: The changes.
        codes: A number for the key of each change, as in ``stored``.
        stored: What was there before the batch.
        lost: The changes that come too late for the store: they go downstream, but leave nothing behind.
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
    if lost is not None and lost.any():
        final = take_or_null(final, np.where(lost[last], -1, np.arange(touched)))
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
