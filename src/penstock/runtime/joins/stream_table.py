"""Joins of a stream with a table or a global table: each row with the table as it was at the row's place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from penstock.runtime.functions.calls import apply
from penstock.runtime.functions.joiners import join_rows
from penstock.runtime.joins.grace import GraceBuffer
from penstock.runtime.operator import Operator
from penstock.runtime.rows import Rows
from penstock.runtime.tables.value_getters import spread
from penstock.runtime.tables.versioned import history_of
from penstock.serde.column import Column
from penstock.topology.operations.base import Operation, StreamGlobalTableJoin, StreamTableJoin

if TYPE_CHECKING:
    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES"]


class _LookUpJoin(Operator):
    """The base of joins that look up the table's value for each row."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        operation = cast("StreamTableJoin | StreamGlobalTableJoin", node.operation)
        self._name = node.name
        self._context = context
        self._joiner = operation.joiner
        self._is_left = operation.left

    @abstractmethod
    def _look_up(self, rows: Rows, keys: Column) -> Column:
        """Return the table's values under the keys, none of which is null."""

    def _joined(self, rows: Rows, keys: Column) -> Rows:
        """Return the rows joined with the table's values under the keys; null keys find nothing."""
        if not len(rows):
            return replace(rows, olds=None)
        null = keys.null_mask()
        if null.all():
            right = Column.nulls(len(rows))
        elif null.any():
            keyed = np.flatnonzero(~null)
            right = spread(self._look_up(rows.take(keyed), keys.take(keyed)), keyed, len(rows))
        else:
            right = self._look_up(rows, keys)
        if not self._is_left:
            found = ~right.null_mask()
            if not found.all():
                rows, right = rows.filter(found), right.filter(found)
        return join_rows(self._joiner, rows, right, self._name, self._context)


class _StreamTableJoin(_LookUpJoin):
    """KStreamKTableJoin: only the stream's rows cause results.

    Null values are dropped, and null keys of an inner join. A versioned table is read as of the row's time.
    """

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        super().__init__(node, topology, context)
        self._operation = operation = cast("StreamTableJoin", node.operation)
        self._buffer: GraceBuffer | None = None
        if operation.buffer_store is not None and operation.grace_ms is not None:
            self._buffer = GraceBuffer(node.name, operation.buffer_store, operation.grace_ms, context)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        null_keys = rows.keys.null_mask()
        null_values = rows.values.null_mask()
        dropped = null_values if self._operation.left else null_values | null_keys
        if dropped.any():
            self._context.drop_rows(self._name, rows, np.flatnonzero(dropped), "null key or value")
            rows = rows.filter(~dropped)
        if self._buffer is not None:
            rows = self._buffer.release(rows)
        return self._joined(rows, rows.keys)

    def _look_up(self, rows: Rows, keys: Column) -> Column:
        view = self._context.table(self._operation.table)
        history = history_of(view)
        found = view.values_at(rows, keys) if history is None else history.values_as_of(rows, keys, rows.timestamps)
        return found[0]


class _StreamGlobalTableJoin(_LookUpJoin):
    """KStreamGlobalKTableJoin: joins with the row of the global table whose key a function derives from the record.

    Null values are dropped, and null keys of the table in an inner join. A global table does not change during a batch.
    """

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        super().__init__(node, topology, context)
        self._operation = cast("StreamGlobalTableJoin", node.operation)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        null = rows.values.null_mask()
        if null.any():
            self._context.drop(self._name, int(null.sum()), "null value")
            rows = rows.filter(~null)
        keys, kept = apply(self._operation.selector, rows, self._name, self._context)
        if kept is not None:
            rows = rows.take(kept)
        null = keys.null_mask()
        if null.any() and not self._operation.left:
            self._context.drop(self._name, int(null.sum()), "null key of the global table")
            rows, keys = rows.filter(~null), keys.filter(~null)
        return self._joined(rows, keys)

    def _look_up(self, rows: Rows, keys: Column) -> Column:  # noqa: ARG002
        values: Column = self._context.store(self._operation.store).get_columns(keys)[0]
        return values


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    StreamTableJoin: _StreamTableJoin,
    StreamGlobalTableJoin: _StreamGlobalTableJoin,
}
