"""Joins with tables: two tables, and a stream's rows each with the table as it was at the row's place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.batches_of_one import step_of_batches
from penstock.runtime.functions import FAILED, apply, join_rows, join_values, row_call, row_join
from penstock.runtime.operator import Operator, RowStep
from penstock.runtime.rows import RecordContext, Row, Rows
from penstock.runtime.tables import (
    StoredTable,
    assign,
    drop_null_keys,
    drop_out_of_order,
    is_stored,
    row_reader,
    spread,
)
from penstock.runtime.versioned_tables import history_of
from penstock.serde.bound_serdes import plain_headers
from penstock.serde.column import Column, bytes_column, to_bytes_list
from penstock.state.views import TimestampedView
from penstock.state.views.join_buffers import RecordBufferView, WaitingRecord
from penstock.topology.operations.definitions import (
    Operation,
    StreamGlobalTableJoin,
    StreamTableJoin,
    TableJoinMerge,
    TableTableJoin,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.functions import Function
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "GraceBuffer"]

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

    def row_step(self) -> RowStep | None:
        operation, context, name = self._operation, self._context, self._name
        view = context.table(operation.table)
        called, read = row_join(operation.joiner, name, context), row_reader(view, view.sent_at, context)
        if called is None:
            return None
        kind, from_right = operation.kind, operation.from_right
        needs_other = kind == "inner" or (kind == "left" and from_right)
        needs_own = kind == "inner" or (kind == "left" and not from_right)

        def joined(row: Row, own: Any, other: Any) -> Any:
            if (own is None and (needs_own or other is None)) or (other is None and needs_other):
                return None
            return called(row, None, *((other, own) if from_right else (own, other)))

        def step(row: Row) -> Row | None:
            if row.key is None:
                context.drop_row(name, row, "null key")
                return None
            own, old = row.value, row.old_value
            other, stamp = read(row, row.key)
            if other is None and (needs_other or own is None is old):
                return None
            new = joined(row, own, other)
            before = None if new is FAILED or not operation.send_old else joined(row, old, other)
            if new is FAILED or before is FAILED:
                return None
            return Row(max(row.timestamp, stamp), row.key, new, row.headers, before, row.origin)

        return step


class _TableJoinMerge(Operator):
    """KTableKTableJoinMerger: stores the results of both sides and passes them on."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("TableJoinMerge", node.operation)
        self._send_old = operation.send_old
        self._table = None
        if operation.store is not None:
            self._table = StoredTable(node, topology, context)
            self.caches_rows = self._table.caching
        else:
            context.register_table(node.name, _JoinedView(node.name, operation, context))

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if self._table is not None:
            return assign(self._table, rows, olds=rows.olds)
        return rows if self._send_old else replace(rows, olds=Column.nulls(len(rows)))

    def row_step(self) -> RowStep | None:
        table, sends_old = self._table, self._send_old
        if table is None:
            return lambda row: row if sends_old else row.with_change(row.value, None)
        if not table.assigns_rows:
            return table.step_of_batches(self)
        return lambda row: table.assign_row(row, row.value, old=row.old)


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
            is_matched = ~right.null_mask()
            if not is_matched.all():
                rows, right, keys = rows.filter(is_matched), right.filter(is_matched), keys.filter(is_matched)
        mapped = keys if self._joiner.arity == 4 else None
        return join_rows(self._joiner, rows, right, self._name, self._context, mapped)

    def _row_join(self, read: Callable[[Row, Any], Any]) -> Callable[[Row, Any], Row | None] | None:
        """Return the join of a row by itself with the table's value under a key, which ``read`` returns."""
        called, is_left = row_join(self._joiner, self._name, self._context), self._is_left
        if called is None:
            return None

        def join(row: Row, key: Any) -> Row | None:
            right = None if key is None else read(row, key)
            if right is None and not is_left:
                return None
            result = called(row, key, row.value, right)
            return None if result is FAILED else row.with_pair(row.key, result)

        return join


class _StreamTableJoin(_LookUpJoin):
    """KStreamKTableJoin: only the stream's rows cause results.

    Null values are dropped, and null keys of an inner join. A versioned table is read as of the row's time.
    """

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        super().__init__(node, topology, context)
        self._operation = operation = cast("StreamTableJoin", node.operation)
        self._buffer: GraceBuffer | None = None
        if operation.buffer_store is not None and operation.grace_ms is not None:
            self.makes_many = True
            self._buffer = GraceBuffer(node.name, operation.buffer_store, operation.grace_ms, context)

    @property
    def leaves_out_rows(self) -> bool:  # type: ignore[override]
        """Whether nothing waits for the join, and no function is called to read the table."""
        return self._buffer is None and is_stored(self._context.table(self._operation.table))

    def process(self, rows: Rows, parent: str) -> Rows | Iterable[tuple[str | None, Rows]]:  # noqa: ARG002
        null_keys = rows.keys.null_mask()
        null_values = rows.values.null_mask()
        dropped = null_values if self._operation.left else null_values | null_keys
        if dropped.any():
            self._context.drop_rows(self._name, rows, np.flatnonzero(dropped), "null key or value")
            rows = rows.filter(~dropped)
        if self._buffer is not None:
            if self._context.by_record:
                return self._one_by_one(self._buffer.release_each(rows))
            rows = self._buffer.release(rows)
        return self._joined(rows, rows.keys)

    def row_step(self) -> RowStep | None:
        context, name, is_left = self._context, self._name, self._is_left
        view = context.table(self._operation.table)
        if history_of(view) is None:
            value_of = row_reader(view, view.values_at, context)
            join = self._row_join(lambda row, key: value_of(row, key)[0])
        else:
            join = self._row_join(
                lambda row, key: self._look_up(row.rows(context.step), Column.of_items([key])).items()[0]
            )
        if join is None:
            return None
        if self._buffer is not None:
            return step_of_batches(self, context)

        def step(row: Row) -> Row | None:
            if row.value is None or (row.key is None and not is_left):
                context.drop_row(name, row, "null key or value")
                return None
            return join(row, row.key)

        return step

    def _one_by_one(self, released: Iterator[Rows]) -> Iterator[tuple[str | None, Rows]]:
        """Join each record while it waits still; one that fails stays there, and so do those behind it, as in Kafka."""
        for row in released:
            joined = self._joined(row, row.keys)
            if self._context.has_failed:
                return
            yield None, joined

    def _look_up(self, rows: Rows, keys: Column) -> Column:
        view = self._context.table(self._operation.table)
        history = history_of(view)
        looked_up = view.values_at(rows, keys) if history is None else history.values_as_of(rows, keys, rows.timestamps)
        return looked_up[0]


class _StreamGlobalTableJoin(_LookUpJoin):
    """KStreamGlobalKTableJoin: joins with the row of the global table whose key a function derives from the record.

    Null values are dropped, and null keys of the table in an inner join. A global table does not change during a batch.
    """

    leaves_out_rows = True

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

    def row_step(self) -> RowStep | None:
        context, name, is_left, operation = self._context, self._name, self._is_left, self._operation
        called = row_call(operation.selector, name, context)
        join = self._row_join(lambda _, key: self._value_of(key))
        if join is None or called is None:
            return None

        def step(row: Row) -> Row | None:
            if row.value is None:
                context.drop(name, 1, "null value")
                return None
            key = called(row, row.value)
            if key is FAILED:
                return None
            if key is None and not is_left:
                context.drop(name, 1, "null key of the global table")
                return None
            return join(row, key)

        return step

    def _value_of(self, key: Any) -> Any:
        store = self._context.store(self._operation.store)
        if type(store) is TimestampedView:
            return store.read_entry(store.entry_of(key))[0]
        return store.get_columns(Column.of_items([key]))[0].items()[0]

    def _look_up(self, rows: Rows, keys: Column) -> Column:  # noqa: ARG002
        values: Column = self._context.store(self._operation.store).get_columns(keys)[0]
        return values


class GraceBuffer:
    """A buffer of records that wait for their grace period, joined at the row of the batch that ends it."""

    def __init__(self, node: str, store: str, grace_ms: int, context: TaskContext) -> None:
        self._name = node
        self._store = store
        self._grace_ms = grace_ms
        self._context = context

    def release(self, rows: Rows) -> Rows:
        """Return the records that are to be joined, at the places where that happens."""
        rows = self._refuse_null_keys(rows)
        if not len(rows):
            return rows
        rows = replace(rows, origins=self._origins(rows))
        store = cast("RecordBufferView", self._context.store(self._store))
        before = store.observed_stream_time
        running = np.maximum.accumulate(np.maximum(rows.timestamps, before))
        late = rows.timestamps < np.append(before, running[:-1]) - self._grace_ms
        positions = np.arange(len(rows))
        leaves = np.maximum(positions, np.searchsorted(running, rows.timestamps + self._grace_ms))
        leaves[late] = positions[late]
        keys = cast("list[bytes]", to_bytes_list(store.spec.key_serde.encode(rows.keys)))
        waited = store.take_until(int(running[-1]) - self._grace_ms)
        store.observe(int(running[-1]))
        staying = np.flatnonzero(leaves == len(rows))
        if len(staying):
            store.add(self._waiting(rows.take(staying), [keys[i] for i in staying.tolist()], store))
        released = _released(rows, np.flatnonzero(leaves < len(rows)), waited, store)
        times = released.timestamps
        old_leaves = np.searchsorted(running, times[len(times) - len(waited) :] + self._grace_ms)
        going = np.concatenate([leaves[leaves < len(rows)], old_leaves])
        going_keys = [key for key, leave in zip(keys, leaves.tolist(), strict=True) if leave < len(rows)]
        return _in_order(rows, released, going, [*going_keys, *(record.key for record in waited)], len(waited))

    def release_each(self, rows: Rows) -> Iterator[Rows]:
        """Hold a record back, and yield those that are to be joined now; each waits until the next one is asked for."""
        rows = self._refuse_null_keys(rows)
        if not len(rows):
            return
        rows = replace(rows, origins=self._origins(rows))
        store = cast("RecordBufferView", self._context.store(self._store))
        time = int(rows.timestamps[0])
        if time < store.observed_stream_time - self._grace_ms:
            yield rows
        else:
            keys = cast("list[bytes]", to_bytes_list(store.spec.key_serde.encode(rows.keys)))
            store.add(self._waiting(rows, keys, store))
            store.observe(time)
        for row, record in store.until(store.observed_stream_time - self._grace_ms):
            yield _released(rows, np.empty(0, np.int64), [record], store)
            store.remove(row)

    def _refuse_null_keys(self, rows: Rows) -> Rows:
        null = rows.keys.null_mask()
        for row in np.flatnonzero(null).tolist():
            error = ProcessingError(
                f"{self._name}: a record without key cannot wait in a join with a grace period",
                hint="Filter such records out before the join.",
                node=self._name,
            )
            self._context.failed(self._name, None, rows, row, error)
        return rows.filter(~null)

    def _origins(self, rows: Rows) -> list[RecordContext | None]:
        """Return the source record of each row, which it keeps while it waits."""
        topics, partitions, offsets = self._context.input.sources(rows.place.inputs)
        names = [None if topic is None else topic.decode() for topic in topics.to_pylist()]
        headers = map(plain_headers, rows.headers or [()] * len(rows))
        contexts = map(RecordContext, names, partitions.tolist(), offsets.tolist(), rows.timestamps.tolist(), headers)
        return [rows.origin(row) or own for row, own in enumerate(contexts)]

    @staticmethod
    def _waiting(rows: Rows, keys: list[bytes], store: RecordBufferView) -> list[WaitingRecord]:
        values = cast("list[bytes]", to_bytes_list(store.spec.value_serde.encode(rows.values)))
        headers = map(plain_headers, rows.headers or [()] * len(rows))
        sources = [(o.topic or "", o.partition, o.offset) for o in rows.origins or () if o is not None]
        parts = zip(rows.timestamps.tolist(), keys, values, headers, sources, strict=True)
        return [WaitingRecord(time, key, value, each, *source) for time, key, value, each, source in parts]


def _released(rows: Rows, own: NDArray[np.int64], waited: list[WaitingRecord], store: RecordBufferView) -> Rows:
    """Return the batch's own rows that leave, then those from before; all at the place of the first row."""
    parts = rows.take(own)
    if not waited:
        return parts
    headers = None
    if parts.headers is not None or any(record.headers for record in waited):
        headers = [*(parts.headers or [()] * len(parts)), *(record.headers for record in waited)]
    keys = store.spec.key_serde.decode(bytes_column([record.key for record in waited]))
    values = store.spec.value_serde.decode(bytes_column([record.value for record in waited]))
    return Rows(
        rows.place.take(np.zeros(len(own) + len(waited), np.int64)),
        np.concatenate([parts.timestamps, np.array([record.time for record in waited], np.int64)]),
        Column.concat([parts.keys, keys]),
        Column.concat([parts.values, values]),
        headers,
        origins=[*(parts.origins or ()), *map(_origin, waited)],
    )


def _origin(record: WaitingRecord) -> RecordContext:
    return RecordContext(record.topic or None, record.partition, record.offset, record.time, record.headers)


def _in_order(rows: Rows, released: Rows, leaves: NDArray[np.int64], keys: list[bytes], waited: int) -> Rows:
    """Return the records by the row with which they leave, time, key and arrival, at that row's place."""
    own = len(leaves) - waited
    times, when = released.timestamps.tolist(), leaves.tolist()
    order = np.array(
        sorted(range(len(keys)), key=lambda at: (when[at], times[at], keys[at], at - len(keys) if at >= own else at)),
        np.int64,
    )
    at_rows = leaves[order]
    return released.take(order).with_place(rows.place.take(at_rows).extend(np.arange(len(order))))


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    StreamTableJoin: _StreamTableJoin,
    StreamGlobalTableJoin: _StreamGlobalTableJoin,
    TableTableJoin: _TableTableJoin,
    TableJoinMerge: _TableJoinMerge,
}
