"""The base of aggregations of streams, and of those by window."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, cast

from penstock.runtime.aggregate.close import closed_windows
from penstock.runtime.aggregate.window_assignment import WindowAssigner
from penstock.runtime.operator import Operator
from penstock.runtime.tables.stored import StoredTable
from penstock.topology.operations.base import WindowedAggregate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["StreamAggregator", "WindowOperator"]


class StreamAggregator(Operator):
    """An operator that aggregates a stream, windowed or not."""

    @abstractmethod
    def process(self, rows: Rows, parent: str) -> Rows:
        """Aggregate a batch; return the table's changes."""

    @abstractmethod
    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:
        """Add rows that have keys, given the stream time at each of them; return the table's changes."""


class WindowOperator(StreamAggregator):
    """Observes stream time, and sends each change on, or the contents of a window when it closes."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("WindowedAggregate", node.operation)
        self._name = node.name
        self._context = context
        self._operation = operation
        self._windows = WindowAssigner(node.name, operation.windows, operation.store, context)
        self._table = StoredTable(node, topology, context, on_close=operation.on_close)
        self._closed = closed_windows(node.name, operation, context)
        self.runs_without_rows = operation.idle_ms is not None

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, stream_times = self._windows.observe(rows)
        if self._closed is None:
            return self.add(rows, stream_times)
        return self._closed.run(rows, stream_times, self.add, self._checking(rows, stream_times))

    def _checking(self, rows: Rows, stream_times: NDArray[np.int64]) -> NDArray[np.bool_] | None:  # noqa: ARG002
        """Return the mask of rows that check for closed windows; None: all."""
        return None
