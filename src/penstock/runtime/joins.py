"""Stream-table joins: each row of the stream with the table as it was at the row's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from penstock.runtime.joiners import join_rows
from penstock.runtime.rows import Rows
from penstock.runtime.views import spread
from penstock.serde.column import Column
from penstock.topology.operations import Operation, StreamTableJoin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import Operator, TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES"]


class _StreamTableJoin:
    """KStreamKTableJoin: only the stream's rows cause results.

    Null values are dropped, and null keys of an inner join.
    """

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        self._operation = cast("StreamTableJoin", node.operation)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        null_keys = rows.keys.null_mask()
        null_values = rows.values.null_mask()
        dropped = null_values if self._operation.left else null_values | null_keys
        if dropped.any():
            self._context.drop(self._name, int(dropped.sum()), "null key or value")
            rows = rows.filter(~dropped)
            null_keys = null_keys[~dropped]
        if not len(rows):
            return replace(rows, olds=None)
        right = self._right(rows, null_keys)
        if not self._operation.left:
            found = ~right.null_mask()
            if not found.all():
                rows, right = rows.filter(found), right.filter(found)
        return join_rows(self._operation.joiner, rows, right, self._name, self._context)

    def _right(self, rows: Rows, null_keys: NDArray[np.bool_]) -> Column:
        view = self._context.table(self._operation.table)
        if not null_keys.any():
            return view.values_at(rows, rows.keys)[0]
        keyed = np.flatnonzero(~null_keys)
        if not len(keyed):
            return Column.nulls(len(rows))
        part = rows.take(keyed)
        return spread(view.values_at(part, part.keys)[0], keyed, len(rows))


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    StreamTableJoin: _StreamTableJoin,
}
