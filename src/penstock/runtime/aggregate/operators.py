"""Operators that aggregate: a stream by key, by key and window, several streams together, and a regrouped table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.aggregate.sessions import SessionAggregate
from penstock.runtime.aggregate.sliding import SlidingAggregate
from penstock.runtime.aggregate.windows import NO_TIME, StreamAggregator, WindowOperator
from penstock.runtime.batches_of_one import step_of_batches
from penstock.runtime.fold.columns import few_by_row, fold_known, one_by_row, recognise
from penstock.runtime.fold.rows import ChangeFold, FoldInput, fold_changes, fold_expression, fold_rows, row_fold
from penstock.runtime.operator import Operator, RowStep
from penstock.runtime.rows import FEW, Row, Rows
from penstock.runtime.tables import StoredTable, drop_null_keys
from penstock.serde.column import Column
from penstock.serde.windowed import Window, Windowed, WindowedColumn
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.definitions import (
    Aggregation,
    CogroupMember,
    CogroupMerge,
    Operation,
    StreamAggregate,
    TableAggregate,
    WindowedAggregate,
)
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.fold.columns import FoldResult, RowGroups
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "Aggregator", "Cogrouped"]

_FIRST = np.zeros(1, np.intp)  # the number of the only row of a batch


class Aggregator:
    """Aggregates rows with keys into a stored table, by the fastest way with the same result as the row loop."""

    def __init__(self, node: str, aggregation: Aggregation, table: StoredTable, context: TaskContext) -> None:
        self._name = node
        self._aggregation = aggregation
        self._known = recognise(aggregation)
        self._few_by_row = few_by_row(aggregation, self._known)
        self._table = table
        self._context = context
        self._row_fold = row_fold(aggregation)
        by_row = one_by_row(aggregation, self._known)
        self.takes_one = table.takes_entries and by_row
        self.takes_rows = table.takes_rows and by_row

    def add(self, rows: Rows) -> Rows:
        """Add the rows (no null keys) to the table; return the table's changes."""
        return self._table.update(rows, self._fold)

    def add_row(self, row: Row, entry: bytes, changed: Any) -> Row | None:
        """Add a row by itself to an entry of the table, if `takes_rows`; return the change of the key ``changed``."""
        store, table, context = self._table.store, self._table, self._context
        before, its_stamp = store.read_entry(entry)
        try:
            old, new, stamp = self._row_fold(row.key, row.value, row.timestamp, before, its_stamp)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            context.failed(self._name, self._aggregation.aggregator, row.rows(context.step), 0, error)
            return None
        store.write_entry(entry, new, stamp)
        return table.row_change(row, changed, before if table.caching else old, new, stamp)

    def _fold(self, rows: Rows, groups: RowGroups, before: tuple[Column, NDArray[np.int64]]) -> FoldResult:
        function = self._aggregation.aggregator
        if self._few_by_row and len(rows) <= FEW:
            return fold_rows(self._input(rows, groups, before))
        fold: FoldResult | None = None
        if self._known is not None:
            fold = fold_known(self._known, rows, groups, before, per_row=self._table.per_row)
        if fold is None and function is not None and function.is_expression:
            fold = fold_expression(self._input(rows, groups, before))
        return fold or fold_rows(self._input(rows, groups, before))

    def _input(self, rows: Rows, groups: RowGroups, before: tuple[Column, NDArray[np.int64]]) -> FoldInput:
        return FoldInput(self._aggregation, rows, groups, before, self._name, self._context)


class _StreamAggregate(StreamAggregator):
    """KStreamAggregate and KStreamReduce: null keys and null values are dropped."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("StreamAggregate", node.operation)
        self._name = node.name
        self._context = context
        self._table = StoredTable(node, topology, context)
        self._aggregator = Aggregator(node.name, operation.aggregation, self._table, context)
        self.caches_rows = self._table.caching

    def row_step(self) -> RowStep | None:
        if self._aggregator.takes_rows:
            return self._add_row
        return self._table.step_of_batches(self)

    def _add_row(self, row: Row) -> Row | None:
        if row.key is None or row.value is None:
            self._context.drop_rows(self._name, row.rows(self._context.step), _FIRST, "null key or value")
            return None
        return self._aggregator.add_row(row, self._table.store.entry_of(row.key), row.key)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if len(rows) == 1 and self._aggregator.takes_one:
            change = self._add_row(Row.only_of(rows))
            return self._table.changes_of(rows, () if change is None else (change,))
        null = rows.keys.null_mask() | rows.values.null_mask()
        if null.any():
            self._context.drop_rows(self._name, rows, np.flatnonzero(null), "null key or value")
            rows = rows.filter(~null)
        return self._aggregator.add(rows)

    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:  # noqa: ARG002 - as of windowed ones
        return self._aggregator.add(rows)


class _WindowedAggregate(WindowOperator):
    """KStreamWindowAggregate: each row goes into every window of its time that is still open at that row."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        super().__init__(node, topology, context)
        self._aggregator = Aggregator(node.name, self._operation.aggregation, self._table, context)
        windows = self._operation.windows
        is_tumbling = windows.kind == "time" and windows.advance_ms in {0, windows.size_ms}
        self._takes_rows = self._aggregator.takes_rows and is_tumbling and self._closed is None
        self._takes_one = self._takes_rows and self._aggregator.takes_one
        self.leaves_out_rows = is_tumbling or windows.kind == "unlimited"
        self.makes_many = not self.leaves_out_rows or self._closed is not None

    def process(self, rows: Rows, parent: str) -> Rows:
        if self._takes_one and len(rows) == 1:
            row = Row.only_of(rows)
            place = self._place_of(row)
            if place is not None:
                change = self._add_to(row, *place)
                return self._table.changes_of(rows, () if change is None else (change,))
        return super().process(rows, parent)

    def row_step(self) -> RowStep | None:
        return self._add_row if self._takes_rows else super().row_step()

    def _add_row(self, row: Row) -> Row | Sequence[Row] | None:
        place = self._place_of(row)
        if place is None:
            return Row.each_of(super().process(row.rows(self._context.step), ""))
        return self._add_to(row, *place)

    def _place_of(self, row: Row) -> tuple[tuple[int, int], bytes] | None:
        """Return a row's window and the place of its entry; None if anything about it is unusual."""
        window = None if row.key is None else self._windows.open_window(row.timestamp)
        entry = None if window is None else self._table.store.entry_of(row.key, window[0])
        return None if entry is None or window is None else (window, entry)

    def _add_to(self, row: Row, window: tuple[int, int], entry: bytes) -> Row | None:
        self._windows.observe_one(row.timestamp)
        return self._aggregator.add_row(row, entry, Windowed(row.key, Window(*window)))

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
        """Return the rows whose windows the store no longer shows, as earlier rows of the batch have moved its time on.

        Only a cogroup has them: its streams have times of their own, and one may be behind the others. The results of
        such a row go downstream all the same; if the store does not take it, it is counted, as in Kafka.
        """
        starts, store = cast("WindowedColumn", rows.keys).starts, self._table.store
        observed = np.maximum.accumulate(np.append(store.observed_stream_time, starts))
        lost = int((~store.is_live(starts, observed[1:])).sum())
        if lost:
            self._context.drop(self._name, lost, "the store keeps no window that old")
        return np.flatnonzero(starts < store.visible_from(observed[:-1]))


def aggregator_of(node: ProcessorNode, topology: Topology, context: TaskContext) -> StreamAggregator:
    """Return the operator of a stream's aggregation, by the kind of its windows."""
    if isinstance(node.operation, StreamAggregate):
        return _StreamAggregate(node, topology, context)
    match cast("WindowedAggregate", node.operation).windows.kind:
        case "sliding":
            return SlidingAggregate(node, topology, context)
        case "session":
            return SessionAggregate(node, topology, context)
        case _:
            return _WindowedAggregate(node, topology, context)


class _TableAggregate(Operator):
    """KTableAggregate and KTableReduce."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("TableAggregate", node.operation)
        self._name = node.name
        self._aggregation = operation.aggregation
        self._context = context
        self._table = StoredTable(node, topology, context)
        self._change_fold = ChangeFold(operation.aggregation)
        self.caches_rows = self._table.caching

    def row_step(self) -> RowStep | None:
        if self._table.takes_rows:
            return self._add_row
        return self._table.step_of_batches(self)

    def _add_row(self, row: Row) -> Row | None:
        table, fold, context = self._table, self._change_fold, self._context
        if row.key is None:
            self._refuse_null_key(row.rows(context.step), 0)
            return None
        entry = table.store.entry_of(row.key)
        before, its_stamp = table.store.read_entry(entry)
        try:
            new, stamp = fold(row.key, row.value, row.old_value, row.timestamp, before, its_stamp)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            context.failed(self._name, fold.function, row.rows(context.step), 0, error)
            return None
        table.store.write_entry(entry, new, stamp)
        return table.row_change(row, row.key, before, new, stamp)

    def _refuse_null_key(self, rows: Rows, row: int) -> None:
        error = ProcessingError(f"{self._name}: the key of a grouped table's record is null", node=self._name)
        self._context.failed(self._name, None, rows, row, error)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        null = rows.keys.null_mask()
        for row in np.flatnonzero(null).tolist():
            self._refuse_null_key(rows, row)
        return self._table.update(rows.filter(~null), self._fold)

    def _fold(self, rows: Rows, groups: RowGroups, before: tuple[Column, NDArray[np.int64]]) -> FoldResult:
        return fold_changes(FoldInput(self._aggregation, rows, groups, before, self._name, self._context))


class Cogrouped(NamedTuple):
    """A value, and the number of the stream that it came from."""

    stream: int
    value: Any


class CogroupedColumn(Column):
    """Values of several streams, the number of each one's stream, and that stream's time at the row."""

    __slots__ = ("streams", "times", "values")

    def __init__(self, streams: NDArray[np.int64], times: NDArray[np.int64], values: Column) -> None:
        super().__init__(None, None)
        self.streams = streams
        self.times = times
        self.values = values

    def __len__(self) -> int:
        return len(self.streams)

    @property
    def is_columnar(self) -> bool:
        return False

    def items(self) -> list[Any]:
        if self._items is None:
            self._items = list(map(Cogrouped, self.streams.tolist(), self.values.items()))
        return self._items

    def null_mask(self) -> NDArray[np.bool_]:
        return np.zeros(len(self), np.bool_)  # a null value is a value of its stream

    def take(self, index: NDArray[np.int64]) -> CogroupedColumn:
        return CogroupedColumn(self.streams[index], self.times[index], self.values.take(index))

    def concat_same(self, columns: Sequence[Column]) -> CogroupedColumn:
        parts = cast("Sequence[CogroupedColumn]", columns)
        return CogroupedColumn(
            np.concatenate([part.streams for part in parts]),
            np.concatenate([part.times for part in parts]),
            Column.concat([part.values for part in parts]),
        )


class _Member(Operator):
    """One of the streams: leaves out the rows that its aggregator would, and keeps its own stream time."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        operation = cast("CogroupMember", node.operation)
        self._name = node.name
        self._number = operation.number
        self._context = context
        self._meta = f"{node.name}/stream-time"
        self._windowed = operation.windows is not None
        self._takes_nulls = operation.windows is not None and operation.windows.kind != "sliding"

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows = drop_null_keys(rows, self._name, self._context)
        if not self._takes_nulls:
            null = rows.values.null_mask()
            if null.any():
                self._context.drop(self._name, int(null.sum()), "null value")
                rows = rows.filter(~null)
        return rows.with_values(self._cogrouped(rows))

    def row_step(self) -> RowStep:
        def step(row: Row) -> Row | None:  # the row keeps its batch, for the column of the merge
            rows = self.process(row.rows(self._context.step), "")
            return Row.only_of(rows) if len(rows) else None

        return step

    def _cogrouped(self, rows: Rows) -> CogroupedColumn:
        times = self._observe(rows) if self._windowed else rows.timestamps
        streams = np.full(len(rows), self._number, np.int64)
        return CogroupedColumn(streams, times, rows.values)

    def _observe(self, rows: Rows) -> NDArray[np.int64]:
        before = self._context.get_meta(self._meta, NO_TIME)
        times = np.maximum.accumulate(np.maximum(rows.timestamps, before))
        if len(times):
            self._context.put_meta(self._meta, int(times[-1]))
        return times


class _Merge(Operator):
    """The table of all the streams."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("CogroupMerge", node.operation)
        aggregation = Aggregation(
            "aggregate", _by_stream(operation.aggregators), operation.initializer, merger=operation.merger
        )
        self._core = aggregator_of(_single(node, operation, aggregation), topology, context)
        self.leaves_out_rows = self._core.leaves_out_rows
        self.caches_rows, self.makes_many = self._core.caches_rows, self._core.makes_many
        self._context = context

    def row_step(self) -> RowStep:
        return step_of_batches(self, self._context)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if not len(rows):
            return replace(rows, olds=Column.nulls(0))
        return self._core.add(rows, cast("CogroupedColumn", rows.values).times)


def _single(node: ProcessorNode, operation: CogroupMerge, aggregation: Aggregation) -> ProcessorNode:
    """Return the node that makes the same table as if one stream had all the records."""
    single: Operation
    if operation.windows is None:
        single = StreamAggregate(aggregation, operation.store, operation.send_old)
    else:
        single = WindowedAggregate(aggregation, operation.windows, operation.store, send_old=operation.send_old)
    return ProcessorNode(node.name, single, node.parents, node.stores)


def _by_stream(aggregators: tuple[Function, ...]) -> Function:
    """Return one aggregator that calls that of the value's stream; errors are traced to the one that raised."""
    functions = [one.fn for one in aggregators]

    def aggregate(key: Any, value: Cogrouped, so_far: Any) -> Any:
        return functions[value.stream](key, value.value, so_far)

    return Function(aggregate, 3, "cogroup", "", 0)


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    StreamAggregate: aggregator_of,
    WindowedAggregate: aggregator_of,
    TableAggregate: _TableAggregate,
    CogroupMember: _Member,
    CogroupMerge: _Merge,
}
