"""Tables kept in versioned stores: puts row by row, and reads by joins as of any place and any time.

A put may be older than the latest version of its key; it then changes the past, and the change is sent on as one that
is not the latest. Puts from before the store's history change nothing and send nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from penstock.runtime.fold.columns import RowGroups
from penstock.runtime.rows import Place, Rows
from penstock.serde.column import Column
from penstock.state.views.versioned import IS_LATEST, NOT_PUT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.fold.columns import GroupFold
    from penstock.runtime.operator import TableView
    from penstock.state.views import VersionedView

__all__ = ["HistoryView", "OverParent", "VersionedTable", "VersionedTableView", "history_of"]

_ONE = RowGroups.of_codes(np.zeros(1, np.int64))


class HistoryView(Protocol):
    """The view of a table that knows its past: a ``KTableValueGetter`` that is versioned."""

    def values_as_of(self, rows: Rows, keys: Column, times: NDArray[np.int64]) -> tuple[Column, NDArray[np.int64]]:
        """Return the values that were valid at these times, as known at the places of the rows."""
        ...


def history_of(view: TableView) -> HistoryView | None:
    """Return the view, if its table's store is versioned."""
    return cast("HistoryView", view) if getattr(view, "is_versioned", False) else None


class VersionedTableView:
    """The view of a table in a versioned store.

    It notes the batch's puts; when rows ask, the puts to the keys that they ask for are done once more, in order of
    place, over the store as it was before the batch.
    """

    is_versioned = True

    def __init__(self, store: str, context: TaskContext) -> None:
        self._store = store
        self._context = context
        self._batch: int | None = None
        self._observed = -1
        self._before: dict[bytes, bytes | None] = {}
        self._places: list[Place] = []
        self._puts: list[tuple[bytes, bytes | None, int]] = []

    @property
    def store(self) -> VersionedView:
        return cast("VersionedView", self._context.store(self._store))

    def put(self, place: Place, keys: list[bytes], values: list[bytes | None], times: list[int]) -> list[int]:
        """Put at these places; return the results of the store's ``put``."""
        self._forget_old_batches()
        codes = self.store.put_bytes(keys, values, times, self._before)
        self._places.append(place)
        self._puts += zip(keys, values, times, strict=True)
        return codes

    def values_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the latest values as of the places of the rows."""
        self._forget_old_batches()
        if not self._puts:
            return self.store.get_columns(keys)
        return self._replayed(rows, keys, None)

    sent_at = values_at  # versioned tables are never cached

    def values_as_of(self, rows: Rows, keys: Column, times: NDArray[np.int64]) -> tuple[Column, NDArray[np.int64]]:
        """Return the values that were valid at these times, as known at the places of the rows."""
        self._forget_old_batches()
        if not self._puts:
            return self.store.get_columns_as_of(keys, times)
        return self._replayed(rows, keys, times.tolist())

    def _forget_old_batches(self) -> None:
        if self._batch != self._context.batch:
            self._batch = self._context.batch
            self._observed = self.store.observed_stream_time
            self._before = {}
            self._places = []
            self._puts = []

    def _replayed(self, rows: Rows, keys: Column, times: list[int] | None) -> tuple[Column, NDArray[np.int64]]:
        store = self.store
        versions = store.replay(self._before, self._observed)
        asked = store.encode_keys(keys)
        read_keys = set(asked)
        values: list[bytes | None] = [None] * len(rows)
        stamps = np.full(len(rows), -1, np.int64)
        for at in Place.concat([*self._places, rows.place]).order().tolist():
            row = at - len(self._puts)
            if row < 0:
                key, value, time = self._puts[at]
                if key in read_keys:
                    versions.put(key, value, time)
                else:
                    versions.observe(time)
                continue
            version = versions.latest(asked[row]) if times is None else versions.as_of(asked[row], times[row])
            if version is not None:
                values[row], stamps[row] = version.value, version.timestamp
        return store.decode_values(values), stamps


class OverParent:
    """The view of a table that is derived from its parent's: of the past too, if the parent knows it."""

    def __init__(self, parent: str, context: TaskContext) -> None:
        self._parent = parent
        self._context = context

    @property
    def is_versioned(self) -> bool:
        """Whether the table above knows its past."""
        return history_of(self._context.table(self._parent)) is not None

    def values_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the values derived from the parent's as of the places of the rows."""
        return self._derive(rows, keys, *self._context.table(self._parent).values_at(rows, keys))

    def sent_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the values derived from those that the parent has sent on."""
        return self._derive(rows, keys, *self._context.table(self._parent).sent_at(rows, keys))

    def values_as_of(self, rows: Rows, keys: Column, times: NDArray[np.int64]) -> tuple[Column, NDArray[np.int64]]:
        """Return the values derived from the parent's that were valid at these times."""
        history = history_of(self._context.table(self._parent))
        assert history is not None, "the caller has looked"  # noqa: S101
        return self._derive(rows, keys, *history.values_as_of(rows, keys, times))

    def _derive(
        self,
        rows: Rows,  # noqa: ARG002 - for subclasses
        keys: Column,  # noqa: ARG002
        values: Column,  # noqa: ARG002
        stamps: NDArray[np.int64],  # noqa: ARG002
    ) -> tuple[Column, NDArray[np.int64]]:
        raise TypeError(f"{type(self).__name__} makes nothing of its parent's values")


class VersionedTable:
    """The changes of a stored table whose store is versioned."""

    def __init__(self, view: VersionedTableView, *, send_old: bool) -> None:
        self._view = view
        self._send_old = send_old

    def assign(self, rows: Rows, *, skip_absent: bool = False, olds: Column | None = None) -> Rows:
        """Put each row's value under its key; return the changes.

        Args:
            rows: Rows without null keys.
            skip_absent: Whether a deletion of a missing key does nothing at all.
            olds: The old values, where they are not those of the store.
        """
        if not skip_absent and (olds is not None or not self._send_old):
            return self.put(rows, olds if self._send_old else None)
        changes = []
        for row in range(len(rows)):
            one = rows.row(row)
            old = self._view.store.get_columns(one.keys)[0]
            if not (skip_absent and old.null_mask()[0] and one.values.null_mask()[0]):
                changes.append(self.put(one, old if self._send_old else None))
        return _merged(changes, rows)

    def fold(self, rows: Rows, fold: GroupFold) -> Rows:
        """Aggregate row by row: each result is put at its time before the next row sees the table."""
        changes = []
        for row in range(len(rows)):
            one = rows.row(row)
            done = fold(one, _ONE, self._view.store.get_columns(one.keys))
            if done.changed_rows is not None and not len(done.changed_rows):
                continue
            result = replace(one, values=done.final, timestamps=done.final_stamps)
            changes.append(self.put(result, done.olds if self._send_old else None))
        return _merged(changes, rows)

    def put(self, rows: Rows, olds: Column | None) -> Rows:
        """Put the rows; return the changes of those that were not too late."""
        if not len(rows):
            return replace(rows, olds=Column.nulls(0), latest=None)
        store = self._view.store
        keys, values = store.encode_keys(rows.keys), store.encode_values(rows.values)
        codes = np.array(self._view.put(rows.place, keys, values, rows.timestamps.tolist()), np.int64)
        latest = codes == IS_LATEST
        changes = replace(
            rows,
            olds=Column.nulls(len(rows)) if olds is None else olds,
            latest=None if latest.all() else latest,
        )
        return changes.filter(codes != NOT_PUT)


def _merged(changes: list[Rows], rows: Rows) -> Rows:
    if not changes:
        return replace(rows.take(np.empty(0, np.int64)), olds=Column.nulls(0), latest=None)
    return Rows.merge(changes)
