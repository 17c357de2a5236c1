"""Cogroups: rows of several streams fold into one table, each by the aggregator of its stream.

In Kafka every stream has an aggregating processor, and all of them share a store. Here those processors only mark the
rows with their stream, and the processor behind them, which gets all rows in order of place, aggregates: so rows of one
stream see the results of earlier rows of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.runtime.aggregate.operators import aggregator_of
from penstock.runtime.aggregate.window_assignment import NO_TIME
from penstock.runtime.operator import Operator
from penstock.runtime.rows import Rows
from penstock.runtime.tables.operators import drop_null_keys
from penstock.serde.column import Column
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.base import Aggregation, Operation, StreamAggregate, WindowedAggregate
from penstock.topology.operations.functions import Function
from penstock.topology.operations.tables import CogroupMember, CogroupMerge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "Cogrouped", "CogroupedColumn"]


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
        times = self._observe(rows) if self._windowed else rows.timestamps
        streams = np.full(len(rows), self._number, np.int64)
        return rows.with_values(CogroupedColumn(streams, times, rows.values))

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
    CogroupMember: _Member,
    CogroupMerge: _Merge,
}
