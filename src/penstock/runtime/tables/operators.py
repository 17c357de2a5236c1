"""Operators on tables: sources, filters, maps, regrouping, and the way back to a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.functions.calls import apply, failures_removed
from penstock.runtime.functions.stateless import truth
from penstock.runtime.operator import Operator
from penstock.runtime.rows import Rows
from penstock.runtime.tables.groups import FoldResult, group_keys
from penstock.runtime.tables.stored import StoredTable
from penstock.runtime.tables.value_getters import DerivedView, spread
from penstock.serde.column import Column
from penstock.topology.operations.base import (
    Operation,
    StreamToTable,
    TableFilter,
    TableMapValues,
    TableRegroup,
    TableSource,
    TableToStream,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.functions import Function
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "assign", "drop_null_keys", "drop_out_of_order"]


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

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows = drop_null_keys(rows, self._name, self._context)
        if self._table is None:
            return replace(rows, olds=Column.nulls(len(rows)))
        return assign(self._table, rows)


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


class _TableToStream(Operator):
    """KTable.toStream: the new values."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        pass

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        return Rows(rows.place, rows.timestamps, rows.keys, rows.values, rows.headers, origins=rows.origins)


class _TableRegroup(_Derived):
    """KTableRepartitionMap: the rows that leave one group and enter another.

    A change within one group travels as one row with both values; across groups the old group's row goes first.
    """

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
        keys: list[Any] = []
        news: list[Any] = []
        removed: list[Any] = []
        source: list[int] = []
        part: list[int] = []
        for row, results in enumerate(zip(rows.values.items(), old_pairs.items(), strict=True)):
            try:
                new, old = map(_pair, results)
            except (TypeError, ValueError, KeyError) as error:
                self._context.failed(self._name, self._fn, rows, row, error)
                continue
            if new is not None and old is not None and new[0] == old[0]:
                outgoing = [(new[0], new[1], old[1])]
            else:
                outgoing = [(old[0], None, old[1])] if old is not None else []
                if new is not None:
                    outgoing.append((new[0], new[1], None))
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

    def _refuse_null_keys(self, rows: Rows) -> Rows:
        null = rows.keys.null_mask()
        for row in np.flatnonzero(null).tolist():
            error = ProcessingError(f"{self._name}: the key of a table's record is null", node=self._name)
            self._context.failed(self._name, None, rows, row, error)
        return rows.filter(~null)


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
