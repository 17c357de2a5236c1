"""What the aggregations by window have in common, whatever their windows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, cast

from penstock.runtime.tables_store import StoredTable
from penstock.runtime.windows import WindowAssigner
from penstock.runtime.windows_close import closed_windows
from penstock.topology.operations import WindowedAggregate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.runtime.operator import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["WindowOperator"]


class WindowOperator(ABC):
    """Observes stream time, and sends each change on, or what a window holds when it closes."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("WindowedAggregate", node.operation)
        self._name = node.name
        self._context = context
        self._operation = operation
        self._windows = WindowAssigner(node.name, operation.windows, operation.store, context)
        self._table = StoredTable(
            node.name, operation.store, topology, context, send_old=operation.send_old, on_close=operation.on_close
        )
        self._closed = closed_windows(operation, context)
        self.runs_without_rows = operation.idle_ms is not None

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, stream_times = self._windows.observe(rows)
        if self._closed is None:
            return self.add(rows, stream_times)
        return self._closed.run(rows, stream_times, self.add, self._looking(rows, stream_times))

    @abstractmethod
    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:
        """Adds rows that have keys, given the stream time at each of them; gives the changes."""

    def _looking(self, rows: Rows, stream_times: NDArray[np.int64]) -> NDArray[np.bool_] | None:  # noqa: ARG002
        """Which rows look for windows that have closed; None: all."""
        return None
