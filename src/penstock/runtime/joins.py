"""Stream-table joins: each row of the stream with the table as it was at the row's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from penstock.errors import ProcessingError
from penstock.runtime.calls import failures_removed
from penstock.runtime.expressions import frame
from penstock.runtime.rows import Rows
from penstock.runtime.views import spread
from penstock.serde.column import Column
from penstock.topology.operations import Operation, StreamTableJoin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import Operator, TaskContext
    from penstock.topology.functions import Function
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "join_rows"]


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


def join_rows(joiner: Function, rows: Rows, right: Column, node: str, context: TaskContext) -> Rows:
    """The stream's rows with ``joiner``'s results as values.

    An expression sees ``key``, ``timestamp``, ``left`` and ``right``, and the fields of both sides: a field that both
    have is the left one's; the right one's is ``<field>_right`` then, as in Polars' own joins.
    """
    if not len(rows):
        return rows
    if joiner.is_expression:
        return _join_columns(joiner, rows, right, node, context)
    fn: Callable[..., Any] = joiner.fn
    lefts = rows.values.items()
    keys = rows.keys.items() if joiner.arity == 3 else repeat(None, len(rows))
    results: list[Any] = []
    failed: list[int] = []
    with_key = joiner.arity == 3
    for row, (key, left, value) in enumerate(zip(keys, lefts, right.items(), strict=True)):
        try:
            results.append(fn(key, left, value) if with_key else fn(left, value))
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            context.failed(node, joiner, rows, row, error)
            failed.append(row)
    kept = failures_removed(failed, len(rows))
    return (rows if kept is None else rows.take(kept)).with_values(Column.of_items(results))


def _join_columns(joiner: Function, rows: Rows, right: Column, node: str, context: TaskContext) -> Rows:
    try:
        return rows.with_values(Column.of_series(_evaluate(joiner, rows, right, node)))
    except Exception as error:  # noqa: BLE001 - Polars raises many kinds
        if len(rows) == 1:
            context.failed(node, joiner, rows, 0, error)
            return rows.take(np.empty(0, np.int64)).with_values(Column.nulls(0))
    half = len(rows) // 2
    halves = (np.arange(half), np.arange(half, len(rows)))
    return Rows.merge([_join_columns(joiner, rows.take(p), right.take(p), node, context) for p in halves])


def _evaluate(joiner: Function, rows: Rows, right: Column, node: str) -> pl.Series:
    table = frame(rows, None)
    lefts = table.get_column("value").alias("left")
    rights = right.series().alias("right")
    columns = [c for c in table.get_columns() if c.name not in ("value", "left", "right")]
    taken = {c.name for c in columns}
    if isinstance(rights.dtype, pl.Struct):
        columns += [
            rights.struct.field(name).alias(f"{name}_right" if name in taken else name)
            for name in rights.struct.fields
            if name not in ("key", "timestamp", "value", "left", "right")
        ]
    result = pl.DataFrame([*columns, lefts, rights]).select(joiner.fn)
    if result.width != 1 or len(result) != len(rows):
        raise ProcessingError(
            f"{node}: the joiner at {joiner.file}:{joiner.line} must give one value per record",
            hint="Combine several with pl.struct(...).",
            node=node,
        )
    return result.to_series()


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    StreamTableJoin: _StreamTableJoin,
}
