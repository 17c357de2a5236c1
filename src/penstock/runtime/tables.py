"""Tables: kept in stores, read by other operators, filtered, mapped, regrouped, and turned into streams.

With caching a table sends one change per key and batch, as Kafka's cache does at a commit: the last one, with the value
before the batch as the old one, and none for a key that was not there before and is not there now.

Other operators read a table as of any place in the batch, as by Kafka's ``KTableValueGetter``. A store holds the state
at the end of the batch. So that a row sees the table as it was at its own place, the table's operator notes every
version that the batch made, and the value before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import polars as pl

from penstock.errors import ProcessingError
from penstock.runtime.batches_of_one import step_of_batches
from penstock.runtime.fold.columns import FoldResult, group_keys
from penstock.runtime.functions import FAILED, apply, failures_removed, row_call, truth
from penstock.runtime.operator import Operator, RowStep
from penstock.runtime.rows import NO_OLD, Place, Row, Rows
from penstock.runtime.versioned_tables import OverParent, VersionedTable, VersionedTableView
from penstock.serde.bound_serdes import uses_headers
from penstock.serde.column import Column
from penstock.serde.windowed import Windowed, WindowedColumn
from penstock.state.views.header_entries import unpack_headers
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.definitions import (
    Operation,
    StreamToTable,
    Suppress,
    TableFilter,
    TableMapValues,
    TableRegroup,
    TableSource,
    TableToStream,
    TableTransformValues,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.fold.columns import GroupFold, RowGroups
    from penstock.runtime.operator import TableView
    from penstock.topology.operations.functions import Function
    from penstock.topology.topology import Topology

__all__ = [
    "FACTORIES",
    "StoreTableView",
    "StoredTable",
    "assign",
    "drop_null_keys",
    "drop_out_of_order",
    "is_read",
    "is_stored",
    "read_store",
    "row_reader",
    "spread",
    "write_store",
]

# Views of stores

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


RowReader = Callable[[Row, Any], tuple[Any, int]]
ReadAt = Callable[[Rows, Column], "tuple[Column, NDArray[np.int64]]"]


def row_reader(view: TableView, read_at: ReadAt, context: TaskContext) -> RowReader:
    """Return the read of a table by a row by itself: the value under a key, and its timestamp (-1 for null).

    Args:
        view: The table.
        read_at: The method of the view that does so for a batch. For a stored table they are the same: the store is up
            to date at every row then, and nothing waits in a cache that another table reads.
        context: The task.
    """
    if type(view) is StoreTableView and view.takes_entries:
        return view.read_entry

    def read(row: Row, key: Any) -> tuple[Any, int]:
        keys = Column.of_items([key])
        values, stamps = read_at(row.rows(context.step), WindowedColumn.of(keys) if type(key) is Windowed else keys)
        return values.items()[0], int(stamps[0])

    return read


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
        spec = context.topology.stores[store]
        self.takes_entries = spec.kind == "timestamped" and not spec.keeps_headers

    def read_entry(self, row: Row, key: Any) -> tuple[Any, int]:  # noqa: ARG002 - as of `row_reader`
        """Return the value under a key and its timestamp, if it `takes_entries`."""
        store = self._context.store(self._store)
        value, stamp = store.read_entry(store.entry_of(key))
        return value, -1 if value is None else stamp

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


# Stored tables


class _TableOperation(Protocol):
    """An operation whose result is kept in a store."""

    @property
    def store(self) -> str: ...

    @property
    def send_old(self) -> bool: ...


class StoredTable:
    """The store of a table node, its view, and the rules for changes that go downstream.

    Args:
        node: The node; its operation names the store and says whether old values are sent.
        topology: The whole topology.
        context: The task.
        on_close: Whether only windows that have closed are sent.
    """

    def __init__(
        self, node: ProcessorNode, topology: Topology, context: TaskContext, *, on_close: bool = False
    ) -> None:
        operation = cast("_TableOperation", node.operation)
        store, send_old = operation.store, operation.send_old
        spec = topology.stores[store]
        self._store = store
        self._context = context
        self._flush_number = list(topology.stores).index(store)  # Kafka flushes stores in the order of their processors
        self._view = StoreTableView(store, context)
        self.send_old = send_old
        self.versions: VersionedTable | None = None
        if spec.kind == "versioned":
            history = VersionedTableView(store, context)
            self.versions = VersionedTable(history, send_old=send_old)
            context.register_table(node.name, history)
        else:
            context.register_table(node.name, self._view)
        self.caching = context.caches(spec) and spec.kind != "versioned" and not on_close
        if self.caching:
            self._view.sent = StoreTableView(store, context)
        self.is_read = is_read(topology, node.name)
        # Kafka's cache sends sessions with the headers of their entries, where these have any.
        self._forgets_headers = spec.kind == "session" and spec.keeps_headers
        self._reads_back = self.caching and uses_headers(spec.value_serde)
        self._is_windowed = spec.kind in {"window", "session"}
        # Whether the value and the timestamp of one entry are all that matters: nobody looks at versions or headers.
        is_stamped = spec.kind in {"timestamped", "session"} or (spec.kind == "window" and spec.timestamped)
        self.takes_rows = is_stamped and not (spec.keeps_headers or self._reads_back)  # by themselves
        self.takes_entries = self.takes_rows and not self.is_read
        self.assigns_rows = self.takes_rows and spec.kind == "timestamped"

    @property
    def per_row(self) -> bool:
        """Whether the value after each single row is needed."""
        return not self.caching or self.is_read

    @property
    def logs_passing(self) -> bool:
        """Whether changelogs have the deletion of each window, also if it comes and goes within a batch."""
        return self._context.current is not None

    @property
    def store(self) -> Any:
        """The typed view of the store."""
        return self._context.store(self._store)

    @property
    def key_serde(self) -> Any:
        return self.store.spec.key_serde

    def stored(self, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return values and timestamps before the batch."""
        return read_store(self.store, keys)

    def put(self, keys: Column, values: Column, timestamps: NDArray[np.int64]) -> None:
        """Write the state without sending changes."""
        write_store(self.store, keys, values, timestamps)

    def update(self, rows: Rows, fold: GroupFold) -> Rows:
        """Fold the rows (no null keys) into the table; return the changes."""
        if not len(rows):
            return replace(rows, olds=Column.nulls(0))
        if self.versions is not None:
            return self.versions.fold(rows, fold)
        groups = group_keys(rows.keys, self.key_serde)
        before = self.stored(rows.keys.take(groups.first))
        return self.commit(rows, groups, fold(rows, groups, before), before)

    def row_change(self, row: Row, key: Any, old: Any, new: Any, stamp: int) -> Row | None:
        """Return the change of a key whose entry a row by itself has changed; None: none is sent, as `commit` knows."""
        if self.caching and new is None:
            if old is None:
                return None
            stamp = row.timestamp
        return Row(stamp, key, new, row.headers, old if self.send_old else None)

    def step_of_batches(self, operator: Operator) -> RowStep | None:
        """Return the step of an operator that needs a batch; None if a change may not be the latest of its key."""
        return None if self.versions is not None else step_of_batches(operator, self._context)

    def assign_row(self, row: Row, value: Any, *, skip_absent: bool = False, old: Any = NO_OLD) -> Row | None:
        """Put a value under the key of a row by itself, if the table `assigns_rows`: see `assign`."""
        store, sends_old, caching = self.store, self.send_old, self.caching
        entry, stored = store.entry_of(row.key), None
        if skip_absent or (caching and value is None) or (sends_old and (caching or old is NO_OLD)):
            stored = store.read_entry(entry)[0]
        if stored is None is value and (skip_absent or caching):
            if not skip_absent:
                store.write_entry(entry, None, row.timestamp)
            return None
        store.write_entry(entry, value, row.timestamp)
        if caching or old is NO_OLD:
            old = stored
        origin = None if caching or sends_old or self.is_read else row.origin
        return Row(row.timestamp, row.key, value, row.headers, old if sends_old else None, origin)

    def changes_of(self, rows: Rows, changes: Sequence[Row]) -> Rows:
        """Return the changes of entries that the only row of a batch has changed: what `commit` returns for it."""
        count = len(changes)
        if not count:
            return rows.without_changes()
        place, keys = rows.place, rows.keys
        if count > 1:
            place, keys = place.repeat(count).extend(np.arange(count)), keys.take(np.zeros(count, np.int64))
        if self._is_windowed:
            windows = [change.key.window for change in changes]
            starts = np.array([window.start for window in windows], np.int64)
            keys = WindowedColumn(keys, starts, np.array([window.end for window in windows], np.int64))
        return Rows(
            place.flushed(self._flush_number) if self.caching else place,
            np.array([change.timestamp for change in changes], np.int64),
            keys,
            Column.of_items([change.value for change in changes]),
            [change.headers for change in changes] if changes[0].headers else None,
            Column.of_items([change.old for change in changes]),
        )

    def commit(
        self, rows: Rows, groups: RowGroups, fold: FoldResult, before: tuple[Column, NDArray[np.int64]] | None
    ) -> Rows:
        """Write the state and return the changes.

        Args:
            rows: The rows that the fold went over, with the table's keys.
            groups: The same rows by key.
            fold: Its result.
            before: The groups' values and timestamps before the batch; may be None if they are not needed, see
                ``needs_before``.
        """
        if len(rows) == 1 == len(fold.last) and fold.last[0] == 0:
            touched = last = fold.last
            final, final_stamps = fold.final, fold.final_stamps
        else:
            touched = np.flatnonzero(fold.last >= 0)
            touched = touched[np.argsort(fold.last[touched], kind="stable")]
            last = fold.last[touched]
            final, final_stamps = fold.final.take(touched), fold.final_stamps[touched]
        kept = rows if fold.changed_rows is None else rows.take(fold.changed_rows)
        if self.is_read and before is not None and fold.news is not None and fold.stamps is not None:
            group_keys = rows.keys.take(groups.first)
            self._view.note(kept.place, (kept.keys, fold.news, fold.stamps), (group_keys, *before))
        keys = rows.keys.take(last)
        if self._view.sent is not None and self.is_read and before is not None:
            at = rows.place.take(last)
            self._view.sent.note(at, (keys, final, final_stamps), (rows.keys.take(groups.first), *before))
        rows_before = self.store.stored_rows(keys) if self._reads_back else None
        write_store(self.store, keys, final, final_stamps)
        if not self.caching:
            if fold.news is None or fold.stamps is None:
                raise AssertionError("a fold without rows can't be sent row by row")
            olds = fold.olds if self.send_old and fold.olds is not None else Column.nulls(len(kept))
            return Rows(kept.place, fold.stamps, kept.keys, fold.news, kept.headers, olds)
        changes = rows.take(last)
        gone = final.null_mask()
        olds = Column.nulls(len(last))
        was_gone = gone
        if before is not None and (self.send_old or gone.any()):
            previous = before[0].take(touched) if rows_before is None else self.store.decode_rows(rows_before)
            was_gone = previous.null_mask()
            olds = previous if self.send_old else olds
        headers = None if self._forgets_headers else changes.headers
        if rows_before is not None:  # what leaves Kafka's cache is decoded again, with the headers that it has by then
            rows_now = self.store.stored_rows(keys)
            final = self.store.decode_rows(rows_now)
            if self._forgets_headers:
                headers = [() if row is None else unpack_headers(row)[0] for row in rows_now]
        result = Rows(
            changes.place.flushed(self._flush_number),
            np.where(gone, changes.timestamps, final_stamps),
            changes.keys,
            final,
            headers,
            olds,
        )
        return result.filter(~(gone & was_gone))

    def needs_before(self, finals: Column) -> bool:
        """Return whether ``commit`` needs the values from before the batch, given those after it."""
        return self.send_old or self.is_read or (self.caching and bool(finals.null_mask().any()))


# Operators


def drop_null_keys(rows: Rows, node: str, context: TaskContext) -> Rows:
    """Return the rows that have a key; the others are counted as dropped."""
    null = rows.keys.null_mask()
    if not null.any():
        return rows
    context.drop_rows(node, rows, np.flatnonzero(null), "null key")
    return rows.filter(~null)


def drop_out_of_order(rows: Rows, node: str, context: TaskContext) -> Rows:
    """Return the changes that are the latest of their key; the others, of a versioned table, are counted as dropped."""
    if rows.latest is None:
        return rows
    context.drop(node, int((~rows.latest).sum()), "out of order in a versioned table")
    return replace(rows.filter(rows.latest), latest=None)


def assign(table: StoredTable, rows: Rows, *, skip_absent: bool = False, olds: Column | None = None) -> Rows:
    """Put each row's value under its key; return the changes.

    Args:
        table: The stored table.
        rows: Rows without null keys; ``values`` are the new values.
        skip_absent: Whether a deletion of a missing key does nothing at all.
        olds: The old values, where they are not those of the store: joined tables send the join's results.
    """
    if not len(rows):
        return replace(rows, olds=Column.nulls(0))
    if table.versions is not None:
        return table.versions.assign(rows, skip_absent=skip_absent, olds=olds)
    if not table.caching and not table.send_old and not table.is_read:
        table.put(rows.keys, rows.values, rows.timestamps)
        return replace(rows, olds=Column.nulls(len(rows)))
    groups = group_keys(rows.keys, table.key_serde)
    last = groups.last_rows()
    before = None
    if skip_absent or table.needs_before(rows.values.take(last)):
        before = table.stored(rows.keys.take(groups.first))
    kept: NDArray[np.int64] | None = None
    if before is not None and (skip_absent or (olds is None and table.send_old and table.per_row)):
        previous = groups.segments.previous_rows()
        every = Column.concat([before[0], rows.values])
        olds = every.take(np.where(previous < 0, groups.codes, len(groups) + previous))
        if skip_absent:
            pointless = olds.null_mask() & rows.values.null_mask()
            if pointless.any():
                kept = np.flatnonzero(~pointless)
                olds = olds.take(kept)
                last = np.full(len(groups), -1, np.int64)
                last[groups.codes[kept]] = kept
    done = np.maximum(last, 0)
    fold = FoldResult(
        final=rows.values.take(done),
        final_stamps=rows.timestamps[done],
        last=last,
        changed_rows=kept,
        news=rows.values if kept is None else rows.values.take(kept),
        olds=olds,
        stamps=rows.timestamps if kept is None else rows.timestamps[kept],
    )
    return table.commit(rows, groups, fold, before)


class _TableSource(Operator):
    """KTableSource: a record is the new value of its key, older timestamps included; a null value deletes."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("TableSource | StreamToTable", node.operation)
        self._name = node.name
        self._context = context
        self._table = None
        if operation.store is not None:
            self._table = StoredTable(node, topology, context)
            self.caches_rows = self._table.caching

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows = drop_null_keys(rows, self._name, self._context)
        if self._table is None:
            return replace(rows, olds=Column.nulls(len(rows)))
        return assign(self._table, rows)

    def row_step(self) -> RowStep | None:
        table, context, name = self._table, self._context, self._name
        if table is not None and not table.assigns_rows:
            return table.step_of_batches(self)

        def step(row: Row) -> Row | None:
            if row.key is None:
                context.drop_row(name, row, "null key")
                return None
            return row.with_change(row.value, None) if table is None else table.assign_row(row, row.value)

        return step


class _Derived(Operator):
    """The base of filter and map_values: a function over present values, with or without a store of their own."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("TableFilter | TableMapValues", node.operation)
        self._name = node.name
        self._context = context
        self._send_old = operation.send_old
        self._table = None
        if operation.store is not None:
            self._table = StoredTable(node, topology, context)
            self.caches_rows = self._table.caching
        else:
            context.register_table(node.name, DerivedView(node.name, operation, context))

    def _over_present(
        self,
        function: Function,
        rows: Rows,
        values: Column,
        finish: Callable[[Column, Column], Column],
    ) -> tuple[Column, NDArray[np.int64] | None]:
        """Apply the function to the values that are not null.

        Returns:
            ``finish(values, results)`` where there was a value, null elsewhere; and the rows whose call did not raise.
        """
        null = values.null_mask()
        if null.all():
            return Column.nulls(len(rows)), None
        there = np.flatnonzero(~null)
        present = replace(rows, values=values, olds=None)
        present = present.take(there) if null.any() else present
        results, positions = apply(function, present, self._name, self._context)
        if positions is None:
            return spread(finish(present.values, results), there, len(rows)), None
        good = failures_removed(np.setdiff1d(there, there[positions]).tolist(), len(rows))
        return spread(finish(present.values.take(positions), results), there[positions], len(rows)), good

    def _compute(
        self, function: Function, rows: Rows, finish: Callable[[Column, Column], Column], *, with_olds: bool
    ) -> tuple[Rows, Column]:
        """Return the rows with new values computed, and the old values computed likewise (nulls unless asked for)."""
        news, good = self._over_present(function, rows, rows.values, finish)
        if good is not None:
            rows, news = rows.take(good), news.take(good)
        if not with_olds or rows.olds is None:
            return rows.with_values(news), Column.nulls(len(rows))
        olds, good = self._over_present(function, rows, rows.olds, finish)
        if good is not None:
            rows, news, olds = rows.take(good), news.take(good), olds.take(good)
        return rows.with_values(news), olds

    def _row_step(self, compute: Callable[[Row, Any], Any], *, skip_absent: bool) -> RowStep | None:
        """Return the step that computes values from those that are there; the result is `FAILED` where that failed."""
        table, with_olds = self._table, self._send_old and self._table is None
        if table is not None and not table.assigns_rows:
            return table.step_of_batches(self)

        def step(row: Row) -> Row | None:
            new = None if row.value is None else compute(row, row.value)
            if new is FAILED:
                return None
            if table is not None:
                return table.assign_row(row, new, skip_absent=skip_absent)
            old = row.old_value if with_olds else None
            if old is not None:
                old = compute(row, old)
                if old is FAILED:
                    return None
            return None if skip_absent and new is None and old is None else row.with_change(new, old)

        return step


class _TableFilter(_Derived):
    """KTableFilter."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        super().__init__(node, topology, context)
        operation = cast("TableFilter", node.operation)
        self._predicate = operation.predicate
        self._negate = operation.negate
        # Of a versioned table every change goes on: the first value that passes may be an old one.
        self._skip_absent = operation.send_old and not operation.versioned

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        with_olds = self._send_old and self._table is None
        rows, olds = self._compute(self._predicate, rows, self._keep_passing, with_olds=with_olds)
        if self._table is not None:
            return assign(self._table, rows, skip_absent=self._skip_absent)
        rows = replace(rows, olds=olds)
        return rows.filter(~(rows.values.null_mask() & olds.null_mask())) if self._skip_absent else rows

    def row_step(self) -> RowStep | None:
        called, negate = row_call(self._predicate, self._name, self._context), self._negate
        if called is None:
            return None

        def passing(row: Row, value: Any) -> Any:
            verdict = called(row, value)
            return FAILED if verdict is FAILED else value if bool(verdict) != negate else None

        return self._row_step(passing, skip_absent=self._skip_absent)

    def _keep_passing(self, values: Column, verdicts: Column) -> Column:
        passed = truth(verdicts)
        passed = ~passed if self._negate else passed
        if passed.all():
            return values
        return values.take_or_null(np.where(passed, np.arange(len(values)), -1))


class _TableMapValues(_Derived):
    """KTableMapValues."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        super().__init__(node, topology, context)
        self._fn = cast("TableMapValues", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        with_olds = self._send_old and self._table is None
        rows, olds = self._compute(self._fn, rows, lambda _, results: results, with_olds=with_olds)
        return assign(self._table, rows) if self._table is not None else replace(rows, olds=olds)

    def row_step(self) -> RowStep | None:
        called = row_call(self._fn, self._name, self._context)
        return None if called is None else self._row_step(called, skip_absent=False)


class _TableToStream(Operator):
    """KTable.toStream: the new values."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        pass

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        return Rows(rows.place, rows.timestamps, rows.keys, rows.values, rows.headers, origins=rows.origins)

    def row_step(self) -> RowStep:
        return lambda row: Row(row.timestamp, row.key, row.value, row.headers, NO_OLD, row.origin)


class _TableRegroup(_Derived):
    """KTableRepartitionMap: the rows that leave one group and enter another.

    A change within one group travels as one row with both values; across groups the old group's row goes first.
    """

    makes_many = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        operation = cast("TableRegroup", node.operation)
        self._fn = operation.fn
        self._versioned = operation.versioned

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows = self._refuse_null_keys(rows)
        if self._versioned and rows.latest is not None:  # groups hold the latest values only
            rows = rows.filter(rows.latest)
        olds = rows.olds if rows.olds is not None else Column.nulls(len(rows))
        rows, old_pairs = self._compute(self._fn, replace(rows, olds=olds), lambda _, pairs: pairs, with_olds=True)
        changes = _regrouped_by_column(rows, old_pairs)
        if changes is not None:
            return changes
        keys: list[Any] = []
        news: list[Any] = []
        removed: list[Any] = []
        source: list[int] = []
        part: list[int] = []
        for row, results in enumerate(zip(rows.values.items(), old_pairs.items(), strict=True)):
            try:
                outgoing = _moves(*results)
            except (TypeError, ValueError, KeyError) as error:
                self._context.failed(self._name, self._fn, rows, row, error)
                continue
            for number, (key, value, previous) in enumerate(outgoing):
                keys.append(key)
                news.append(value)
                removed.append(previous)
                source.append(row)
                part.append(number)
        taken = rows.take(np.asarray(source, np.int64))
        return Rows(
            taken.place.extend(np.asarray(part, np.int64)),
            taken.timestamps,
            Column.of_items(keys),
            Column.of_items(news),
            taken.headers,
            Column.of_items(removed),
        )

    def row_step(self) -> RowStep | None:
        called, context = row_call(self._fn, self._name, self._context), self._context
        if called is None:
            return None

        def step(row: Row) -> list[Row] | None:
            if row.key is None:
                self._refuse_null_keys(row.rows(context.step))
                return None
            new = None if row.value is None else called(row, row.value)
            if new is FAILED:
                return None
            old = row.old_value
            if old is not None:
                old = called(row, old)
                if old is FAILED:
                    return None
            try:
                outgoing = _moves(new, old)
            except (TypeError, ValueError, KeyError) as error:
                context.failed(self._name, self._fn, row.rows(context.step), 0, error)
                return None
            return [Row(row.timestamp, key, value, row.headers, previous) for key, value, previous in outgoing]

        return step

    def _refuse_null_keys(self, rows: Rows) -> Rows:
        null = rows.keys.null_mask()
        for row in np.flatnonzero(null).tolist():
            error = ProcessingError(f"{self._name}: the key of a table's record is null", node=self._name)
            self._context.failed(self._name, None, rows, row, error)
        return rows.filter(~null)


def _regrouped_by_column(rows: Rows, old_pairs: Column) -> Rows | None:
    """Regroup rows whose pairs are struct columns; None where they are something else, or a key is unusual."""
    entering, leaving_pairs = _pair_columns(rows.values), _pair_columns(old_pairs)
    if entering is None or leaving_pairs is None:
        return None
    keys, news = entering
    old_keys, olds = leaving_pairs
    if keys.dtype != old_keys.dtype or news.dtype != olds.dtype:
        return None
    enters, leaves = (
        (keys.is_not_null() & news.is_not_null()).to_numpy(),
        (old_keys.is_not_null() & olds.is_not_null()).to_numpy(),
    )
    stays = enters & leaves & keys.eq_missing(old_keys).to_numpy()
    gone, came = np.flatnonzero(leaves & ~stays), np.flatnonzero(enters)
    source = np.concatenate([gone, came])
    part = np.concatenate([np.zeros(len(gone), np.int64), (leaves & ~stays)[came].astype(np.int64)])
    order = np.lexsort((part, source))
    source, part, leaving = source[order], part[order], np.arange(len(source))[order] < len(gone)
    taken, count = rows.take(source), len(rows)
    return Rows(
        taken.place.extend(part),
        taken.timestamps,
        Column.of_series(pl.concat([keys, old_keys])).take(np.where(leaving, count + source, source)),
        Column.of_series(news).take_or_null(np.where(leaving, -1, source)),
        taken.headers,
        Column.of_series(olds).take_or_null(np.where(leaving | stays[source], source, -1)),
    )


def _pair_columns(pairs: Column) -> tuple[pl.Series, pl.Series] | None:
    """Return keys and values of a column of pairs that an expression has made."""
    if not pairs.is_columnar or pairs.is_padded:
        return None
    series = pairs.series()
    if not isinstance(series.dtype, pl.Struct) or {field.name for field in series.dtype.fields} != {"key", "value"}:
        return None
    keys, values = series.struct.field("key"), series.struct.field("value")
    return (keys.alias(""), values.alias("")) if keys.dtype == pl.String or keys.dtype.is_integer() else None


def _moves(new_result: Any, old_result: Any) -> list[tuple[Any, Any, Any]]:
    """Return the changes of groups, key, new and old value, of the grouping function's results for a row's values."""
    new, old = _pair(new_result), _pair(old_result)
    if new is not None and old is not None and new[0] == old[0]:
        return [(new[0], new[1], old[1])]
    changes = [(old[0], None, old[1])] if old is not None else []
    if new is not None:
        changes.append((new[0], new[1], None))
    return changes


def _pair(result: Any) -> tuple[Any, Any] | None:
    """Return the key and value of a grouping function's result; None when there is nothing to send."""
    if result is None:
        return None
    key, value = (result["key"], result["value"]) if isinstance(result, dict) else result
    return None if key is None or value is None else (key, value)


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    TableSource: _TableSource,
    StreamToTable: _TableSource,
    TableFilter: _TableFilter,
    TableMapValues: _TableMapValues,
    TableToStream: _TableToStream,
    TableRegroup: _TableRegroup,
}
