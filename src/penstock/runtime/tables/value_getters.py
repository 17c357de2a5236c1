"""The values of a table as other operators see them: Kafka's ``KTableValueGetter``, as of any place in the batch.

A store holds the state at the end of the batch. So that a row sees the table as it was at its own place, the table's
operator notes every version that the batch made, and the value before it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.functions.calls import apply
from penstock.runtime.functions.stateless import truth
from penstock.runtime.rows import Place, Rows
from penstock.runtime.tables.groups import group_keys
from penstock.runtime.tables.versioned import OverParent, VersionedTableView
from penstock.serde.column import Column
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.base import TableFilter, TableMapValues, TableRegroup
from penstock.topology.operations.tables import Suppress, TableTransformValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.operator import TableView
    from penstock.topology.topology import Topology

__all__ = ["DerivedView", "StoreTableView", "is_read", "is_stored", "read_store", "spread", "write_store"]

_BEFORE = -1  # the rank of the values before the batch


def read_store(store: Any, keys: Column) -> tuple[Column, NDArray[np.int64]]:
    """Return values and timestamps under the keys; of windows when store and keys are windowed."""
    result: tuple[Column, NDArray[np.int64]] = store.get_columns(keys)
    return result


def write_store(store: Any, keys: Column, values: Column, timestamps: NDArray[np.int64]) -> None:
    """Set values and timestamps under the keys; null deletes."""
    if store.spec.kind == "window":
        store.put_columns(keys, None, values, timestamps)
    elif store.spec.kind == "session":
        store.put_columns(keys, values)
    else:
        store.put_columns(keys, values, timestamps)


def is_read(topology: Topology, node: str) -> bool:
    """Return whether some operator looks values up in the table of this node."""
    for other in topology.nodes.values():
        if not isinstance(other, ProcessorNode):
            continue
        operation = other.operation
        if isinstance(operation, TableRegroup):
            continue
        names = {getattr(operation, f.name) for f in fields(operation) if isinstance(getattr(operation, f.name), str)}
        if node not in names:
            continue
        if isinstance(operation, TableFilter | TableMapValues | TableTransformValues | Suppress):
            shows_parent = operation.store is None or isinstance(operation, Suppress)
            if shows_parent and is_read(topology, other.name):
                return True
            continue
        return True
    return False


def is_stored(view: TableView) -> bool:
    """Return whether a table is read without a call of the user's functions."""
    return type(view) in (StoreTableView, VersionedTableView)


class StoreTableView:
    """The view of a table that is kept in a store, with the versions of the present batch."""

    def __init__(self, store: str, context: TaskContext) -> None:
        self._store = store
        self._context = context
        self._batch: int | None = None
        self._places: list[Place] = []
        self._columns: list[tuple[Column, Column, NDArray[np.int64]]] = []
        self._before: list[tuple[Column, Column, NDArray[np.int64]]] = []
        self.sent: StoreTableView | None = None  # of a cached table: the values that it sends on

    def note(
        self,
        place: Place,
        versions: tuple[Column, Column, NDArray[np.int64]],
        before: tuple[Column, Column, NDArray[np.int64]],
    ) -> None:
        """Note the batch's versions (keys, values, timestamps) at their places, and the values before them."""
        self._forget_old_batches()
        self._places.append(place)
        self._columns.append(versions)
        self._before.insert(0, before)  # of several notes in one batch the first has the values before the batch

    def _forget_old_batches(self) -> None:
        if self._batch != self._context.batch:
            self._batch = self._context.batch
            self._places.clear()
            self._columns.clear()
            self._before.clear()

    def values_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the values under the keys (none of them null) as of the places of the rows."""
        result, stamps = self.versions_at(rows, keys)
        return result, np.where(result.null_mask(), -1, stamps)

    def sent_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the values that the table has sent on by then."""
        return self.values_at(rows, keys) if self.sent is None else self.sent.values_at(rows, keys)

    def read(self, store: Any, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the store's values under the keys."""
        return read_store(store, keys)

    def versions_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the values as of the places of the rows, with the timestamps as they were noted."""
        self._forget_old_batches()
        store = self._context.store(self._store)
        if not self._places:
            groups = group_keys(keys, store.spec.key_serde)
            current, current_stamps = self.read(store, keys.take(groups.first))
            return current.take(groups.codes), current_stamps[groups.codes]
        rows_noted = self._newest_versions(rows.place, keys, store.spec.key_serde)
        unchanged = np.flatnonzero(rows_noted < 0)
        noted = [*self._before, *self._columns]
        values = [column for _, column, _ in noted]
        stamps_of = [stamps for _, _, stamps in noted]
        total = sum(map(len, values))
        if len(unchanged):
            others = keys.take(unchanged)
            groups = group_keys(others, store.spec.key_serde)
            stored, stored_stamps = self.read(store, others.take(groups.first))
            rows_noted[unchanged] = total + groups.codes
            values.append(stored)
            stamps_of.append(stored_stamps)
        stamps = np.concatenate(stamps_of)[rows_noted]
        return Column.concat(values).take(rows_noted), stamps

    def _newest_versions(self, place: Place, keys: Column, serde: Any) -> NDArray[np.int64]:
        """Return for each row the newest version of its key at that place, as a position in the notes; -1 for none."""
        old_keys = [k for k, _, _ in self._before]
        new_keys = [k for k, _, _ in self._columns]
        codes = group_keys(Column.concat([*old_keys, *new_keys, keys]), serde).codes
        before = sum(map(len, old_keys))
        versions = before + sum(map(len, new_keys))
        order = Place.concat([*self._places, place]).order()
        ranks = np.full(len(codes), _BEFORE, np.int64)
        ranks[before + order] = np.arange(len(order))
        by_key = np.lexsort((ranks, codes))
        sorted_codes = codes[by_key]
        position = np.arange(len(by_key))
        newest = np.maximum.accumulate(np.where(by_key < versions, position, -1))
        of_same_key = (newest >= 0) & (sorted_codes[newest] == sorted_codes)
        result = np.empty(len(by_key), np.int64)
        result[by_key] = np.where(of_same_key, by_key[newest], -1)
        return result[versions:]


class DerivedView(OverParent):
    """The view of a filtered or mapped table that has no store: its parent's view, and the function on the way."""

    def __init__(self, node: str, operation: TableFilter | TableMapValues, context: TaskContext) -> None:
        super().__init__(operation.parent, context)
        self._node = node
        self._operation = operation

    def _derive(
        self, rows: Rows, keys: Column, values: Column, stamps: NDArray[np.int64]
    ) -> tuple[Column, NDArray[np.int64]]:
        operation = self._operation
        there = np.flatnonzero(~values.null_mask())
        if not len(there):
            return values, stamps
        present = Rows(rows.place.take(there), stamps[there], keys.take(there), values.take(there))
        function = operation.predicate if isinstance(operation, TableFilter) else operation.fn
        results, kept = apply(function, present, self._node, self._context)
        if kept is not None:
            there = there[kept]
        if isinstance(operation, TableFilter):
            passed = truth(results)
            there = there[~passed if operation.negate else passed]
            column = spread(values.take(there), there, len(keys))
        else:
            column = spread(results, there, len(keys))
        return column, np.where(column.null_mask(), -1, stamps)


def spread(values: Column, positions: NDArray[np.int64], length: int) -> Column:
    """Return a column of this length with the values at these positions and nulls elsewhere."""
    if len(positions) == length:
        return values
    index = np.full(length, -1, np.int64)
    index[positions] = np.arange(len(positions))
    return values.take_or_null(index)
