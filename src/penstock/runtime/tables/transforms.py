"""``transform_values``: a user's transformer over the changes of a table, and over the values read of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from penstock.api.processing.processor import Headers, Record, RecordMetadata
from penstock.errors import TopologyError
from penstock.runtime.functions.calls import failures_removed
from penstock.runtime.operator import Operator
from penstock.runtime.processors import NodeContext
from penstock.runtime.rows import Rows
from penstock.runtime.tables.operators import assign
from penstock.runtime.tables.stored import StoredTable
from penstock.runtime.tables.value_getters import is_read, spread
from penstock.runtime.tables.versioned import OverParent
from penstock.serde.column import Column
from penstock.serde.headers import plain_headers
from penstock.topology.operations.base import Operation
from penstock.topology.operations.tables import TableTransformValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.base.durations import DurationLike, TimestampLike
    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES"]


class _TransformerContext(NodeContext):
    """The task as a transformer sees it: it can neither forward nor schedule."""

    def __init__(self, node: ProcessorNode, topology: Topology, task: TaskContext) -> None:
        super().__init__(cast("Any", self), node, task, frozenset())
        self._globals = topology.global_stores
        self.row_timestamp = -1
        self.row_headers: Headers = ()

    def timestamp(self) -> int:
        return self.row_timestamp

    def headers(self) -> Headers:
        return self.row_headers

    def is_global(self, store: str) -> bool:
        return store in self._globals

    def forward(self, record: Record[Any, Any], child: str | None = None) -> NoReturn:  # noqa: ARG002
        self._refuse("forwards")

    def schedule(
        self,
        interval: DurationLike,  # noqa: ARG002
        type: str,  # noqa: A002, ARG002
        callback: Callable[[int], None],  # noqa: ARG002
        *,
        start: TimestampLike | None = None,  # noqa: ARG002
    ) -> NoReturn:
        self._refuse("schedules a punctuation")

    def _refuse(self, what: str) -> NoReturn:
        raise TopologyError(
            f"{self._node.name}: a transformer {what}, but it can only return values",
            hint="Use to_stream().process(...), whose processors can.",
            node=self._node.name,
        )

    def record_metadata(self) -> RecordMetadata | None:
        source = self._task.input.record(self.position)
        return None if source.topic is None else RecordMetadata(source.topic, source.partition, source.offset)


class _Transformer:
    """A user's transformer and its context."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        self._name = node.name
        self._task = context
        self._context = _TransformerContext(node, topology, self._task)
        self.transformer = cast("TableTransformValues", node.operation).supplier()
        self.transformer.init(self._context)

    def over(
        self, rows: Rows, keys: Column, *columns: Column, read_at: NDArray[np.int64] | None = None
    ) -> tuple[list[Column], NDArray[np.int64] | None]:
        """Call it for each row with the value of each column; return the results and the rows that did not raise.

        Args:
            rows: The rows that come, or that cause the reading.
            keys: The keys of the rows.
            columns: The values.
            read_at: For rows that are read from the table, their times; they have no headers.
        """
        transform: Callable[[Any, Any], Any] = self.transformer.transform
        context = self._context
        results: list[list[Any]] = [[] for _ in columns]
        failed: list[int] = []
        inputs = rows.place.inputs.tolist()
        stamps = (rows.timestamps if read_at is None else read_at).tolist()
        headers = rows.headers if read_at is None else None
        for row, (position, key, *values) in enumerate(
            zip(inputs, keys.items(), *(c.items() for c in columns), strict=True)
        ):
            context.position = position
            context.row_timestamp, context.row_headers = (
                stamps[row],
                () if headers is None else plain_headers(headers[row]),
            )
            try:
                transformed = [transform(key, value) for value in values]
            except Exception as error:  # noqa: BLE001 - whatever a user's transformer raises
                self._task.failed(self._name, None, rows, row, error)
                failed.append(row)
                continue
            for column, result in zip(results, transformed, strict=True):
                column.append(result)
        return [Column.of_items(column) for column in results], failures_removed(failed, len(rows))


class _TableTransform(Operator):
    """KTableTransformValues."""

    leaves_out_rows = keeps_users_state = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("TableTransformValues", node.operation)
        self._send_old = operation.send_old
        self._transformer = _Transformer(node, topology, context)
        self._view: _TransformedView | None = None
        self._table = None
        self.sliced_reason: str | None = None
        if operation.store is not None:
            self._table = StoredTable(node, topology, context)
        elif is_read(topology, node.name):
            self._view = _TransformedView(operation.parent, _Transformer(node, topology, context), context)
            context.register_table(node.name, self._view)
            if operation.stores:
                self.sliced_reason = "its transformer has state, and is called again whenever the table is read"

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if self._table is None and self._send_old:
            olds = rows.olds if rows.olds is not None else Column.nulls(len(rows))
            (news, befores), good = self._transformer.over(rows, rows.keys, rows.values, olds)
            rows = rows if good is None else rows.take(good)
            return replace(rows, values=news, olds=befores)
        (news,), good = self._transformer.over(rows, rows.keys, rows.values)
        rows = (rows if good is None else rows.take(good)).with_values(news)
        if self._table is None:
            return replace(rows, olds=Column.nulls(len(rows)))
        return assign(self._table, rows)

    def close(self) -> None:
        """Close the user's transformers."""
        self._transformer.transformer.close()
        if self._view is not None:
            self._view.transformer.transformer.close()


class _TransformedView(OverParent):
    """The view of a transformed table that has no store: its parent's view, and a transformer of its own."""

    def __init__(self, parent: str, transformer: _Transformer, context: TaskContext) -> None:
        super().__init__(parent, context)
        self.transformer = transformer

    def _derive(
        self, rows: Rows, keys: Column, values: Column, stamps: NDArray[np.int64]
    ) -> tuple[Column, NDArray[np.int64]]:
        """Transform values, also where there is none."""
        (results,), good = self.transformer.over(rows, keys, values, read_at=stamps)
        return (results if good is None else spread(results, good, len(rows))), stamps


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    TableTransformValues: _TableTransform,
}
