"""Table-table joins: each side's changes with the other table as it was at the change's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from penstock.runtime.functions.joiners import join_values
from penstock.runtime.operator import Operator
from penstock.runtime.rows import Rows
from penstock.runtime.tables.operators import assign, drop_null_keys, drop_out_of_order
from penstock.runtime.tables.stored import StoredTable
from penstock.runtime.tables.value_getters import spread
from penstock.serde.column import Column
from penstock.topology.operations.base import Operation
from penstock.topology.operations.tables import TableJoinMerge, TableTableJoin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.functions import Function
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES"]

_Values = tuple[Column, "NDArray[np.int64]"]


def _join_where(
    mask: NDArray[np.bool_], joiner: Function, rows: Rows, right: Column, node: str, context: TaskContext
) -> tuple[Column, NDArray[np.int64] | None]:
    """Return the joiner's results where the mask is true, null elsewhere; and the rows whose call did not raise."""
    at = np.flatnonzero(mask)
    if not len(at):
        return Column.nulls(len(rows)), None
    every = len(at) == len(rows)
    results, kept = join_values(
        joiner, rows if every else rows.take(at), right if every else right.take(at), node, context
    )
    if kept is None:
        return spread(results, at, len(rows)), None
    good = ~mask
    good[at[kept]] = True
    return spread(results, at[kept], len(rows)), np.flatnonzero(good)


class _TableTableJoin(Operator):
    """KTableKTableInnerJoin, KTableKTableLeftJoin, KTableKTableRightJoin and KTableKTableOuterJoin."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        self._operation = cast("TableTableJoin", node.operation)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        operation = self._operation
        rows = drop_null_keys(rows, self._name, self._context)
        if operation.versioned:
            rows = drop_out_of_order(rows, self._name, self._context)
        olds = rows.olds if rows.olds is not None else Column.nulls(len(rows))
        if not len(rows):
            return replace(rows, olds=olds)
        others, stamps = self._context.table(operation.table).sent_at(rows, rows.keys)
        alone = others.null_mask()  # the other side has nothing under the key
        needs_other = operation.kind == "inner" or (operation.kind == "left" and operation.from_right)
        if alone.any():
            kept = ~alone if needs_other else ~(alone & rows.values.null_mask() & olds.null_mask())
            rows, olds, others, stamps = rows.filter(kept), olds.filter(kept), others.filter(kept), stamps[kept]
        rows = replace(rows, timestamps=np.maximum(rows.timestamps, stamps))
        news, good = self._joined(rows, rows.values, others)
        if good is not None:
            rows, news, olds, others = rows.take(good), news.take(good), olds.take(good), others.take(good)
        if not operation.send_old:
            return replace(rows, values=news, olds=Column.nulls(len(rows)))
        befores, good = self._joined(rows, olds, others)
        if good is not None:
            rows, news, befores = rows.take(good), news.take(good), befores.take(good)
        return replace(rows, values=news, olds=befores)

    def _joined(self, rows: Rows, values: Column, others: Column) -> tuple[Column, NDArray[np.int64] | None]:
        """Return this side's values, new or old, joined with the other's where the kind of join has a result."""
        operation = self._operation
        there, other_there = ~values.null_mask(), ~others.null_mask()
        match operation.kind:
            case "inner":
                mask = there
            case "left":  # the left side has to be there
                mask = other_there if operation.from_right else there
            case "outer":
                mask = there | other_there
        left, right = (others, values) if operation.from_right else (values, others)
        side = replace(rows, values=left, olds=None)
        return _join_where(mask, operation.joiner, side, right, self._name, self._context)


class _TableJoinMerge(Operator):
    """KTableKTableJoinMerger: stores the results of both sides and passes them on."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("TableJoinMerge", node.operation)
        self._send_old = operation.send_old
        self._table = None
        if operation.store is not None:
            self._table = StoredTable(node, topology, context)
        else:
            context.register_table(node.name, _JoinedView(node.name, operation, context))

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if self._table is not None:
            return assign(self._table, rows, olds=rows.olds)
        return rows if self._send_old else replace(rows, olds=Column.nulls(len(rows)))


class _JoinedView:
    """The view of joined tables that have no store: both sides' views, joined on the way."""

    def __init__(self, node: str, operation: TableJoinMerge, context: TaskContext) -> None:
        self._node = node
        self._operation = operation
        self._context = context

    def values_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return both sides' values as of the places of the rows, joined."""
        left, right = self._context.table(self._operation.left), self._context.table(self._operation.right)
        return self._derive(rows, keys, left.values_at(rows, keys), right.values_at(rows, keys))

    def sent_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the joined values that both sides have sent on by then."""
        left, right = self._context.table(self._operation.left), self._context.table(self._operation.right)
        return self._derive(rows, keys, left.sent_at(rows, keys), right.sent_at(rows, keys))

    def _derive(self, rows: Rows, keys: Column, left: _Values, right: _Values) -> tuple[Column, NDArray[np.int64]]:
        operation = self._operation
        (lefts, left_stamps), (rights, right_stamps) = left, right
        left_there, right_there = ~lefts.null_mask(), ~rights.null_mask()
        match operation.kind:
            case "inner":
                mask = left_there & right_there
            case "left":
                mask = left_there
            case "outer":
                mask = left_there | right_there
        stamps = np.maximum(left_stamps, right_stamps)
        side = Rows(rows.place, stamps, keys, lefts)
        results, good = _join_where(mask, operation.joiner, side, rights, self._node, self._context)
        if good is not None:
            results = spread(results.take(good), good, len(rows))
        return results, np.where(results.null_mask(), -1, stamps)


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    TableTableJoin: _TableTableJoin,
    TableJoinMerge: _TableJoinMerge,
}
