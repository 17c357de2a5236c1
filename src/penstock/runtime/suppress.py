"""The operator that holds a table's changes back: Kafka's ``KTableSuppressProcessor``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.rows import Rows
from penstock.runtime.suppress_rows import BatchBuffer, Bounds, Eviction, Put, evictions
from penstock.runtime.views import StoreTableView, is_read, take_or_null
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn
from penstock.state.views.change_buffer import BufferedChange, ChangeBufferView
from penstock.state.views.frames import from_bytes_list, to_bytes_list
from penstock.topology.operations import Operation
from penstock.topology.suppress import Suppress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import RunningContext
    from penstock.runtime.operator import Operator, TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "SuppressedView"]

_NO_TIME = -1
_NOT_HELD = -2  # in place of a timestamp: the key does not wait, the table above tells its value
_HELD = -1  # Kafka does not know the timestamp of the value before


class SuppressedView(StoreTableView):
    """What others see of a suppressed table: the value before the changes that wait, else that of the table above."""

    def __init__(self, parent: str, store: str, context: TaskContext) -> None:
        super().__init__(store, context)
        self._parent = parent

    def read(self, store: ChangeBufferView, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        found = [store.get(key or b"") for key in to_bytes_list(store.spec.key_serde.encode(keys))]
        priors = from_bytes_list([None if one is None else one.prior for one in found])
        held = np.fromiter((one is not None for one in found), np.bool_, len(found))
        return store.spec.value_serde.decode(priors), np.where(held, _HELD, _NOT_HELD)

    def values_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        values, stamps = self.versions_at(rows, keys)
        others = np.flatnonzero(stamps == _NOT_HELD)
        if not len(others):
            return values, stamps
        above, above_stamps = self._context.table(self._parent).values_at(rows.take(others), keys.take(others))
        index = np.arange(len(rows))
        index[others] = len(rows) + np.arange(len(others))
        stamps = stamps.copy()
        stamps[others] = above_stamps
        return take_or_null(Column.concat([values, above]), index), stamps


class _Suppress:
    """Each row's change waits under its key; rows that move stream time let changes leave."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        self._name = node.name
        self._operation = operation = cast("Suppress", node.operation)
        self._context = context
        self._meta = f"{operation.store}/stream-time"
        self._bounds = Bounds.of(operation)
        self._view = SuppressedView(operation.parent, operation.store, context)
        context.register_table(node.name, self._view)
        self._is_read = is_read(topology, node.name)

    @property
    def _buffer(self) -> ChangeBufferView:
        return cast("ChangeBufferView", self._context.store(self._operation.store))

    def process(self, rows: Rows, parent: str) -> Rows | Iterable[tuple[str | None, Rows]]:  # noqa: ARG002
        if not len(rows):
            return rows
        expiries = self._observe(rows) - self._operation.wait_ms
        if len(rows) == 1:
            return self._one_row(rows, expiries)
        return self._by_row(rows, expiries)

    def _observe(self, rows: Rows) -> NDArray[np.int64]:
        """The operator's stream time at each row."""
        before = self._context.get_meta(self._meta, _NO_TIME)
        times = np.maximum.accumulate(np.maximum(rows.timestamps, before))
        self._context.put_meta(self._meta, int(times[-1]))
        return times

    def _one_row(self, rows: Rows, expiries: NDArray[np.int64]) -> Iterator[tuple[str | None, Rows]]:
        """Each change is still seen to wait while it is passed on, as in Kafka."""
        buffer = self._buffer
        puts = list(self._puts(rows))
        before = buffer.get(puts[0].key)
        done: list[Eviction] = []
        failure: list[Exception] = []

        def full(row: int) -> None:
            try:
                self._full(rows, row, buffer.records, buffer.size)
            except ProcessingError as error:
                failure.append(error)

        for eviction in evictions(buffer, iter(puts), expiries.tolist(), self._bounds, full):
            done.append(eviction)
            yield None, self._sent(rows, [eviction])
        if failure:
            raise failure[0]
        if self._is_read:
            others: dict[bytes, BufferedChange | None] = {e.key: e.change for e in done}
            self._note(rows, puts, done, {**others, puts[0].key: before})

    def _by_row(self, rows: Rows, expiries: NDArray[np.int64]) -> Rows:
        puts = list(self._puts(rows))
        buffer = BatchBuffer(self._buffer, [put.key for put in puts])

        def full(row: int) -> None:
            self._full(rows, row, buffer.records, buffer.size)

        done = list(evictions(buffer, iter(puts), expiries.tolist(), self._bounds, full))
        buffer.write()
        if self._is_read:
            self._note(rows, puts, done, buffer.before)
        return self._sent(rows, done)

    def _puts(self, rows: Rows) -> Iterator[Put]:
        spec = self._buffer.spec
        keys = to_bytes_list(spec.key_serde.encode(rows.keys))
        news = to_bytes_list(spec.value_serde.encode(rows.values))
        olds = [None] * len(rows) if rows.olds is None else to_bytes_list(spec.value_serde.encode(rows.olds))
        task = cast("RunningContext", self._context)
        columns = zip(keys, self._buffer_times(rows).tolist(), olds, news, strict=True)
        for row, (key, time, old, new) in enumerate(columns):
            source = task.record_context(rows, row)
            topic = None if source.topic is None else source.topic.encode()
            where = (topic, source.partition, source.offset, source.headers)
            yield Put(key or b"", BufferedChange(time, source.timestamp, *where, old, old, new))

    def _buffer_times(self, rows: Rows) -> NDArray[np.int64]:
        if self._operation.until_window_closes:
            return WindowedColumn.of(rows.keys).ends
        return rows.timestamps

    def _full(self, rows: Rows, row: int, records: int, size: int) -> None:
        bounds = self._bounds
        error = ProcessingError(
            f"{self._name}: the buffer is full: {records} of {bounds.records} records, {size} of {bounds.size} bytes",
            hint="Give the buffer of suppress() more room, or let it emit early.",
            node=self._name,
        )
        self._context.failed(self._name, None, rows, row, error)

    def _sent(self, rows: Rows, done: list[Eviction]) -> Rows:
        """The changes that have left, at the rows after which they did."""
        if self._operation.until_window_closes:  # nothing was ever sent for the window: nothing needs deleting
            done = [one for one in done if one.change.new is not None]
        spec = self._buffer.spec
        place = rows.place.take(np.array([one.row for one in done], np.int64))
        headers = [one.change.headers for one in done]
        return Rows(
            place.extend(np.array([2 * one.number for one in done], np.int64)),
            np.array([one.change.timestamp for one in done], np.int64),
            spec.key_serde.decode(from_bytes_list([one.key for one in done])),
            spec.value_serde.decode(from_bytes_list([one.change.new for one in done])),
            headers if any(headers) else None,
            spec.value_serde.decode(from_bytes_list([one.change.old for one in done])),
        )

    def _note(
        self, rows: Rows, puts: list[Put], done: list[Eviction], before: dict[bytes, BufferedChange | None]
    ) -> None:
        """What others see of the keys that the rows have touched, from place to place."""
        spec = self._buffer.spec
        held = {key for key, change in before.items() if change is not None}
        leaving: dict[int, list[Eviction]] = {}
        for one in done:
            leaving.setdefault(one.row, []).append(one)
        versions: list[tuple[int, int, bytes, bytes | None, int]] = []  # row, part, key, value, timestamp
        for row, put in enumerate(puts):
            if put.key not in held:
                held.add(put.key)
                versions.append((row, -1, put.key, put.change.prior, _HELD))
            for one in leaving.get(row, ()):
                held.discard(one.key)
                versions.append((row, 2 * one.number + 1, one.key, None, _NOT_HELD))
        place = rows.place.take(np.array([v[0] for v in versions], np.int64))
        self._view.note(
            place.extend(np.array([v[1] for v in versions], np.int64)),
            (
                spec.key_serde.decode(from_bytes_list([v[2] for v in versions])),
                spec.value_serde.decode(from_bytes_list([v[3] for v in versions])),
                np.array([v[4] for v in versions], np.int64),
            ),
            (
                spec.key_serde.decode(from_bytes_list(list(before))),
                spec.value_serde.decode(from_bytes_list([None if c is None else c.prior for c in before.values()])),
                np.array([_NOT_HELD if c is None else _HELD for c in before.values()], np.int64),
            ),
        )


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {Suppress: _Suppress}
