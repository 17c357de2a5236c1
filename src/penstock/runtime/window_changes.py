"""What sliding and session windows do with a batch: several changes of windows for a row, then state and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.rows import Rows
from penstock.runtime.tables_groups import group_keys
from penstock.runtime.tables_store import Fold
from penstock.runtime.views import take_or_null
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.tables_store import StoredTable

__all__ = ["Changes", "changed_rows", "commit"]


class Changes:
    """Changes in the order in which they were made: of which row, and which window's value from what to what."""

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

    def of(self, rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
        """The changes as rows, and the timestamps of the new values."""
        index = np.array(self.rows, np.int64)
        bounds = np.array(self.starts, np.int64), np.array(self.ends, np.int64)
        changes = changed_rows(rows, index, bounds, Column.of_items(self.news), Column.of_items(self.olds))
        return changes, np.array(self.stamps, np.int64)


def changed_rows(
    rows: Rows,
    index: NDArray[np.int64],
    bounds: tuple[NDArray[np.int64], NDArray[np.int64]],
    news: Column,
    olds: Column,
) -> Rows:
    """One row for each change. ``index`` says of which row it is, ascending; ``bounds`` are starts and ends."""
    fresh = np.flatnonzero(np.diff(index, prepend=-1))
    number = np.arange(len(index)) - np.repeat(fresh, np.diff(fresh, append=len(index)))
    return Rows(
        rows.place.take(index).extend(number),
        rows.timestamps[index],
        WindowedColumn(rows.keys.take(index), *bounds),
        news,
        None if rows.headers is None else [rows.headers[i] for i in index.tolist()],
        olds,
    )


def commit(table: StoredTable, changes: Rows, stamps: NDArray[np.int64], lost: NDArray[np.bool_] | None = None) -> Rows:
    """Writes what the changes come to, and gives those that go downstream.

    Args:
        table: The table of the windows.
        changes: From `Changes.of`; they have the timestamps that tombstones get.
        stamps: The timestamps of the new values.
        lost: The changes that come too late for the store: they go downstream, but leave nothing behind.
    """
    if not len(changes):
        return changes
    groups = group_keys(changes.keys, table.key_serde)
    last = groups.last_rows()
    final = changes.values.take(last)
    if lost is not None and lost.any():
        final = take_or_null(final, np.where(lost[last], -1, np.arange(len(last))))
    before = table.stored_in_time(changes.keys.take(groups.first)) if table.needs_before(final) else None
    fold = Fold(final, stamps[last], last, None, changes.values, changes.olds, stamps)
    return table.commit(changes, groups, fold, before)
