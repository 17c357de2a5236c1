"""Operators that aggregate: a stream by key, by key and window, and a regrouped table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.aggregate_expressions import fold_expression
from penstock.runtime.aggregate_known import fold_known
from penstock.runtime.aggregate_recognised import recognise
from penstock.runtime.aggregate_rows import fold_changes, fold_rows
from penstock.runtime.rows import Rows
from penstock.runtime.sessions import SessionAggregate
from penstock.runtime.sliding import SlidingAggregate
from penstock.runtime.tables_groups import group_keys
from penstock.runtime.tables_store import StoredTable
from penstock.runtime.window_operator import WindowOperator
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn
from penstock.topology.operations import Operation, StreamAggregate, TableAggregate, WindowedAggregate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import Operator, TaskContext
    from penstock.runtime.tables_groups import Groups
    from penstock.runtime.tables_store import Fold
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations import Aggregation
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "Aggregator", "StreamAggregator", "aggregator_of"]


class Aggregator:
    """Rows with keys into a stored table, by the fastest way that gives what the row loop gives."""

    def __init__(self, node: str, aggregation: Aggregation, table: StoredTable, context: TaskContext) -> None:
        self._name = node
        self._aggregation = aggregation
        self._known = recognise(aggregation)
        self._table = table
        self._context = context

    def add(self, rows: Rows) -> Rows:
        """Adds the rows (no null keys) to the table; gives the table's changes."""
        if not len(rows):
            return replace(rows, olds=Column.nulls(0))
        if self._table.versions is not None:
            return self._table.versions.fold(rows, self._fold)
        groups = group_keys(rows.keys, self._table.key_serde)
        before = self._table.stored(rows.keys.take(groups.first))
        return self._table.commit(rows, groups, self._fold(rows, groups, before), before)

    def _fold(self, rows: Rows, groups: Groups, before: tuple[Column, NDArray[np.int64]]) -> Fold:
        fold: Fold | None = None
        if self._known is not None:
            fold = fold_known(self._known, rows, groups, before, per_row=self._table.per_row)
        function = self._aggregation.aggregator
        if fold is None and function is not None and function.is_expression:
            fold = fold_expression(self._aggregation, rows, groups, before, self._name, self._context)
        return fold or fold_rows(self._aggregation, rows, groups, before, self._name, self._context)


class _StreamAggregate:
    """KStreamAggregate and KStreamReduce: null keys and null values are dropped."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("StreamAggregate", node.operation)
        self._name = node.name
        self._context = context
        table = StoredTable(node.name, operation.store, topology, context, send_old=operation.send_old)
        self._aggregator = Aggregator(node.name, operation.aggregation, table, context)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        null = rows.keys.null_mask() | rows.values.null_mask()
        if null.any():
            self._context.drop(self._name, int(null.sum()), "null key or value")
            rows = rows.filter(~null)
        return self._aggregator.add(rows)

    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:  # noqa: ARG002 - as of windowed ones
        return self._aggregator.add(rows)


class _WindowedAggregate(WindowOperator):
    """KStreamWindowAggregate: each row goes into every window of its time that is still open at that row."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        super().__init__(node, topology, context)
        self._aggregator = Aggregator(node.name, self._operation.aggregation, self._table, context)

    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:
        rows = self._windows.assign(rows, stream_times)
        cuts = self._hidden(rows)
        if not len(cuts):
            return self._aggregator.add(rows)
        parts = np.split(np.arange(len(rows)), cuts)
        changes = Rows.merge([self._aggregator.add(rows.take(part)) for part in parts if len(part)])
        self._table.store.take_dropped()  # counted row by row already
        return changes

    def _hidden(self, rows: Rows) -> NDArray[np.int64]:
        """Rows whose windows the store no longer shows, as rows before them in the batch have moved its time on.

        Only a cogroup has them: its streams have times of their own, and one may be behind the others. What such a row
        gives goes downstream all the same; if the store does not take it, it is counted, as in Kafka.
        """
        starts, store = cast("WindowedColumn", rows.keys).starts, self._table.store
        observed = np.maximum.accumulate(np.append(store.observed_stream_time, starts))
        lost = int((~store.is_live(starts, observed[1:])).sum())
        if lost:
            self._context.drop(self._name, lost, "the store keeps no window that old")
        return np.flatnonzero(starts < store.visible_from(observed[:-1]))


class StreamAggregator(Protocol):
    """An operator that aggregates a stream, windowed or not."""

    def process(self, rows: Rows, parent: str) -> Rows: ...

    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:
        """Adds rows with keys, given the stream time at each of them; gives the table's changes."""
        ...


def aggregator_of(node: ProcessorNode, topology: Topology, context: TaskContext) -> StreamAggregator:
    """The operator of a stream's aggregation, by the kind of its windows."""
    if isinstance(node.operation, StreamAggregate):
        return _StreamAggregate(node, topology, context)
    match cast("WindowedAggregate", node.operation).windows.kind:
        case "sliding":
            return SlidingAggregate(node, topology, context)
        case "session":
            return SessionAggregate(node, topology, context)
        case _:
            return _WindowedAggregate(node, topology, context)


class _TableAggregate:
    """KTableAggregate and KTableReduce."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("TableAggregate", node.operation)
        self._name = node.name
        self._aggregation = operation.aggregation
        self._context = context
        self._table = StoredTable(node.name, operation.store, topology, context, send_old=operation.send_old)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        null = rows.keys.null_mask()
        for row in np.flatnonzero(null).tolist():
            error = ProcessingError(f"{self._name}: the key of a grouped table's record is null", node=self._name)
            self._context.failed(self._name, None, rows, row, error)
        rows = rows.filter(~null)
        if not len(rows):
            return replace(rows, olds=Column.nulls(0))
        if self._table.versions is not None:
            return self._table.versions.fold(rows, self._fold)
        groups = group_keys(rows.keys, self._table.key_serde)
        before = self._table.stored(rows.keys.take(groups.first))
        return self._table.commit(rows, groups, self._fold(rows, groups, before), before)

    def _fold(self, rows: Rows, groups: Groups, before: tuple[Column, NDArray[np.int64]]) -> Fold:
        return fold_changes(self._aggregation, rows, groups, before, self._name, self._context)


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    StreamAggregate: aggregator_of,
    WindowedAggregate: aggregator_of,
    TableAggregate: _TableAggregate,
}
