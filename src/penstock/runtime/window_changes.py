"""What sliding and session windows do with a batch: several changes of windows for a row, then state and results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.rows import Rows
from penstock.runtime.tables_groups import group_windows
from penstock.runtime.tables_store import Fold
from penstock.runtime.views import take_or_null
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.tables_store import StoredTable

__all__ = ["ChangeColumns", "Changes", "commit"]


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


def commit(
    table: StoredTable,
    changes: Rows,
    stamps: NDArray[np.int64],
    codes: NDArray[np.int64],
    lost: NDArray[np.bool_] | None = None,
) -> Rows:
    """Writes what the changes come to, and gives those that go downstream.

    Args:
        table: The table of the windows.
        changes: From `ChangeColumns.of`; they have the timestamps that tombstones get.
        stamps: The timestamps of the new values.
        codes: A number for the key of each change.
        lost: The changes that come too late for the store: they go downstream, but leave nothing behind.
    """
    if not len(changes):
        return changes
    assert isinstance(changes.keys, WindowedColumn)  # noqa: S101 - as `changed_rows` has made them
    groups = group_windows(codes, changes.keys.starts, changes.keys.ends)
    last = groups.last_rows()
    final = changes.values.take(last)
    if lost is not None and lost.any():
        final = take_or_null(final, np.where(lost[last], -1, np.arange(len(last))))
    before = table.stored_in_time(changes.keys.take(groups.first)) if table.needs_before(final) else None
    fold = Fold(final, stamps[last], last, None, changes.values, changes.olds, stamps)
    return table.commit(changes, groups, fold, before)
