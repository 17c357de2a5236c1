"""The operator that holds a table's changes back: Kafka's ``KTableSuppressProcessor``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock.errors import ProcessingError
from penstock.runtime.operator import Operator
from penstock.runtime.rows import FEW, RecordContext, Rows
from penstock.runtime.suppress.buffers import (
    BatchBuffer,
    BufferBounds,
    BufferChanges,
    Eviction,
    RowChange,
    evictions,
    hold,
    hold_back,
    leaving_after,
    outcome_of,
    puts_of,
)
from penstock.runtime.tables import StoreTableView, is_read
from penstock.serde.base import decode_rows, encode_only, encode_rows
from penstock.serde.bound_serdes import plain_headers
from penstock.serde.column import Column, bytes_column, large_binary, to_bytes_list
from penstock.serde.windowed import WindowedColumn
from penstock.state.views.change_buffer import BufferedChange, ChangeBufferView
from penstock.state.views.change_columns import ChangeColumns
from penstock.topology.operations.base import Operation, Suppress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.serde.base import Serde
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "SuppressedView"]

_NO_TIME = -1
_FEW = 4  # rows that take less time one by one
_NOT_HELD = -2  # in place of a timestamp: the key does not wait, the table above has its value
_HELD = -1  # Kafka does not know the timestamp of the value before
_Place = tuple[str | None, int, int]  # topic, partition, offset


class SuppressedView(StoreTableView):
    """A suppressed table as others see it: the value before the changes that wait, else that of the table above."""

    def __init__(self, parent: str, store: str, context: TaskContext) -> None:
        super().__init__(store, context)
        self._parent = parent

    def read(self, store: ChangeBufferView, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        buffered = [store.get(key or b"") for key in to_bytes_list(store.spec.key_serde.encode(keys))]
        priors = bytes_column([None if one is None else one.prior for one in buffered])
        held = np.fromiter((one is not None for one in buffered), np.bool_, len(buffered))
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
        return Column.concat([values, above]).take_or_null(index), stamps


class RawBytes:
    """The bytes of the source records of changes that wait, for dead letters of operators behind the buffer.

    Kafka keeps them in memory too: after a restart nobody knows them any more.
    """

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._by_key: dict[bytes | None, RecordContext] = {}
        self._batch: _BatchSources | None = None

    def begin(self, keys: Sequence[bytes | None], puts: ChangeColumns, source: Callable[[int], RecordContext]) -> None:
        """Note the source record of each key's last change of a batch.

        Args:
            keys: The key of each row.
            puts: The change of each row.
            source: Returns the source record of a row.
        """
        last = dict(zip(keys, range(len(keys)), strict=True))
        waited = {key: self._by_key[key] for key in last if key in self._by_key}
        self._keep(last)
        self._batch = _BatchSources(puts, source, waited)
        self._by_key.update((key, source(row)) for key, row in last.items())

    def note(self, key: bytes, source: RecordContext) -> None:
        """Note the source record of a change that comes alone."""
        self._keep((key,))
        self._by_key[key] = source

    def _keep(self, keys: Iterable[bytes | None]) -> None:
        """Note the sources of keys before they change, in case that this is taken back."""
        if self._context.is_attempt:
            before = {key: self._by_key.get(key) for key in keys}
            self._context.on_take_back(lambda: self._restore(before))

    def _restore(self, sources: Mapping[bytes | None, RecordContext | None]) -> None:
        self._batch = None
        for key, source in sources.items():
            if source is None:
                self._by_key.pop(key, None)
            else:
                self._by_key[key] = source

    def end(self) -> None:
        """Forget the batch: what waits is noted under its key."""
        self._batch = None

    def take(self, keys: Sequence[bytes | None], origins: list[RecordContext]) -> list[RecordContext | None]:
        """Return the origins of changes that leave, with their bytes where these are known, and forget the changes."""
        contexts: list[RecordContext | None] = []
        for key, origin in zip(keys, origins, strict=True):
            waited = self._by_key.get(key)
            if waited is not None and _place(waited) == _place(origin):
                self._keep((key,))
                del self._by_key[key]
            else:
                waited = None if self._batch is None else self._batch.source_of(key, origin)
            contexts.append(
                origin if waited is None else origin._replace(raw_key=waited.raw_key, raw_value=waited.raw_value)
            )
        return contexts


class _BatchSources:
    """The source records of changes that leave within the batch in which a later one of their key arrived."""

    def __init__(
        self,
        puts: ChangeColumns,
        source: Callable[[int], RecordContext],
        waited: Mapping[bytes | None, RecordContext],
    ) -> None:
        self._puts = puts
        self._source = source
        self._waited = waited

    def source_of(self, key: bytes | None, origin: RecordContext) -> RecordContext | None:
        waited, position = self._waited.get(key), _place(origin)
        if waited is not None and _place(waited) == position:
            return waited
        row = self._rows.get(position)
        return None if row is None else self._source(row)

    @cached_property
    def _rows(self) -> dict[_Place, int]:
        return {_place(one): row for row, one in enumerate(_origins(self._puts))}


def _place(source: RecordContext) -> _Place:
    return source.topic, source.partition, source.offset


def _encoded(serde: Serde[Any], column: Column) -> list[bytes | None]:
    return [encode_only(serde, column)] if len(column) == 1 else encode_rows(serde, column)


class _Suppress(Operator):
    """The operator that holds each row's change back under its key; rows that move stream time release changes."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        self._name = node.name
        self._operation = operation = cast("Suppress", node.operation)
        self._context = context
        self._meta = f"{operation.store}/stream-time"
        self._bounds = BufferBounds.of(operation)
        self._view = SuppressedView(operation.parent, operation.store, context)
        context.register_table(node.name, self._view)
        self._is_read = is_read(topology, node.name)
        self._raw = RawBytes(context) if context.keeps_raw_bytes else None
        self._takes_few = not (self._is_read or self._bounds.is_bounded or self._raw)

    @property
    def _buffer(self) -> ChangeBufferView:
        return cast("ChangeBufferView", self._context.store(self._operation.store))

    def process(self, rows: Rows, parent: str) -> Rows | Iterable[tuple[str | None, Rows]]:  # noqa: ARG002
        count = len(rows)
        if not count:
            return rows
        if count <= _FEW and self._takes_few:
            return self._few(rows)
        if count <= (1 if self._is_read else _FEW):  # several only if nobody sees what waits meanwhile
            return self._one_by_one(rows)
        expiries = self._observe(rows) - self._operation.wait_ms
        keys, puts = self._puts(rows)
        if self._raw is not None:
            self._raw.begin(to_bytes_list(keys), puts, partial(self._context.record_context, rows))
        if len(rows) > FEW:
            outcome = hold_back(self._buffer, keys, puts, expiries, self._bounds)
            if outcome is not None:
                return self._sent(rows, outcome)
        return self._by_row(rows, keys, puts, expiries)

    def _observe(self, rows: Rows) -> NDArray[np.int64]:
        """Return the operator's stream time at each row."""
        before = self._context.get_meta(self._meta, _NO_TIME)
        times = np.maximum.accumulate(np.maximum(rows.timestamps, before))
        self._context.put_meta(self._meta, int(times[-1]))
        return times

    def _puts(self, rows: Rows) -> tuple[pa.Array, ChangeColumns]:
        """Return each row's key and change, as if nothing waited for the key."""
        spec = self._buffer.spec
        news = large_binary(spec.value_serde.encode(rows.values))
        olds = pa.nulls(len(rows), pa.large_binary())
        if rows.olds is not None:
            olds = large_binary(spec.value_serde.encode(rows.olds))
        topics, partitions, offsets = self._context.input.sources(rows.place.inputs)
        until_close = self._operation.until_window_closes
        times = WindowedColumn.of(rows.keys).ends if until_close else rows.timestamps
        numbers = (times, rows.timestamps, offsets, partitions)
        return large_binary(spec.key_serde.encode(rows.keys)), ChangeColumns(
            *numbers, topics, olds, olds, news, None if rows.headers is None else list(map(plain_headers, rows.headers))
        )

    def _few_puts(self, rows: Rows) -> Iterator[RowChange]:
        """Yield the key and change of each of a few rows, as if nothing waited for the key."""
        spec, context = self._buffer.spec, self._context
        keys = _encoded(spec.key_serde, rows.keys)
        olds = repeat(None) if rows.olds is None else _encoded(spec.value_serde, rows.olds)  # first, as in Kafka
        news = _encoded(spec.value_serde, rows.values)
        stamps = rows.timestamps.tolist()
        times = WindowedColumn.of(rows.keys).ends.tolist() if self._operation.until_window_closes else stamps
        for row, (key, old, new, stamp, time) in enumerate(zip(keys, olds, news, stamps, times, strict=False)):
            source = context.input.record(rows.place.input(row))
            topic = None if source.topic is None else source.topic.encode()
            headers = () if rows.headers is None else plain_headers(rows.headers[row])
            if self._raw is not None:
                self._raw.note(key or b"", context.record_context(rows, row))
            change = BufferedChange(time, stamp, topic, source.partition, source.offset, headers, old, old, new)
            yield RowChange(key or b"", change)

    def _few(self, rows: Rows) -> Iterable[tuple[str | None, Rows]]:
        """Process a few rows, if `_takes_few`: what `_one_by_one` does with them."""
        buffer, wait_ms = self._buffer, self._operation.wait_ms
        now = self._context.get_meta(self._meta, _NO_TIME)
        stamps = rows.timestamps.tolist()
        self._context.put_meta(self._meta, max(now, *stamps))
        leaving: list[tuple[str | None, Rows]] = []
        for row, put in enumerate(self._few_puts(rows)):
            hold(buffer, *put)
            now = max(now, stamps[row])
            if buffer.first(now - wait_ms) is None:
                continue
            if len(stamps) == 1:
                return self._leave(rows, row, now - wait_ms)  # each still waits while it is passed on
            leaving += self._leave(rows, row, now - wait_ms)
        return leaving

    def _leave(self, rows: Rows, row: int, expiry: int) -> Iterator[tuple[str | None, Rows]]:
        """Yield the changes that leave after a row."""
        for eviction in leaving_after(self._buffer, row, expiry):
            if self._is_sent(eviction):
                yield None, self._sent_one(rows.row(row), eviction, self._origin(eviction))

    def _is_sent(self, eviction: Eviction) -> bool:
        """Return whether a change that leaves goes on: nothing was sent for a window that closes, so needs deleting."""
        return eviction.change.new is not None or not self._operation.until_window_closes

    def _one_by_one(self, rows: Rows) -> Iterator[tuple[str | None, Rows]]:
        """Process a few rows; each change is still seen to wait while it is passed on, as in Kafka."""
        buffer, puts, wait_ms = self._buffer, self._few_puts(rows), self._operation.wait_ms
        times = accumulate(rows.timestamps.tolist(), max, initial=self._context.get_meta(self._meta, _NO_TIME))
        expiries = [time - wait_ms for time in times][1:]
        self._context.put_meta(self._meta, expiries[-1] + wait_ms)
        before: BufferedChange | None = None
        done: list[Eviction] = []
        failure: list[Exception] = []
        if self._is_read:
            put = next(puts)
            before, puts = buffer.get(put.key), iter([put])

        def full(row: int) -> None:
            try:
                self._full(rows, row, buffer.records, buffer.size)
            except ProcessingError as error:
                failure.append(error)

        for eviction in evictions(buffer, puts, expiries, self._bounds, full):
            if self._is_read:
                done.append(eviction)
            origin = self._origin(eviction)
            if self._is_sent(eviction):
                yield None, self._sent_one(rows.row(eviction.row), eviction, origin)
        if failure:
            raise failure[0]
        if self._is_read:
            others: dict[bytes, BufferedChange | None] = {e.key: e.change for e in done}
            self._note(rows, outcome_of([put], done, {**others, put.key: before}))

    def _by_row(self, rows: Rows, keys: pa.Array, puts: ChangeColumns, expiries: NDArray[np.int64]) -> Rows:
        all_puts = puts_of(keys, puts)
        buffer = BatchBuffer(self._buffer, [put.key for put in all_puts])

        def full(row: int) -> None:
            self._full(rows, row, buffer.records, buffer.size)

        done = list(evictions(buffer, all_puts, expiries.tolist(), self._bounds, full))
        buffer.write()
        return self._sent(rows, outcome_of(all_puts, done, buffer.before))

    def _full(self, rows: Rows, row: int, records: int, size: int) -> None:
        bounds = self._bounds
        error = ProcessingError(
            f"{self._name}: the buffer is full: {records} of {bounds.records} records, {size} of {bounds.size} bytes",
            hint="Give the buffer of suppress() more room, or let it emit early.",
            node=self._name,
        )
        self._context.failed(self._name, None, rows, row, error)

    def _origin(self, eviction: Eviction) -> RecordContext | None:
        """Return the record that the change came with, as `_origins` does."""
        change = eviction.change
        topic = None if change.topic is None else change.topic.decode()
        origin = RecordContext(topic, change.partition, change.offset, change.timestamp, change.headers)
        return origin if self._raw is None else self._raw.take([eviction.key], [origin])[0]

    def _sent_one(self, rows: Rows, eviction: Eviction, origin: RecordContext | None) -> Rows:
        """Return the one change, at the row after which it has left."""
        spec, change = self._buffer.spec, eviction.change
        self._context.sensor.on_emitted(self._context.task_id, self._name, 1)
        return Rows(
            rows.place.extend(2 * eviction.number),
            np.array([change.timestamp], np.int64),
            decode_rows(spec.key_serde, [eviction.key]),
            decode_rows(spec.value_serde, [change.new]),
            [change.headers] if change.headers else None,
            decode_rows(spec.value_serde, [change.old]),
            origins=[origin],
        )

    def _sent(self, rows: Rows, outcome: BufferChanges) -> Rows:
        """Return the changes that have left, at the rows after which they did."""
        if self._is_read:
            self._note(rows, outcome)
        left, spec = outcome.left, self._buffer.spec
        origins = self._origins(outcome)
        index = np.arange(len(outcome.left_rows))
        if self._operation.until_window_closes:  # nothing was ever sent for the window: nothing needs deleting
            index = np.flatnonzero(left.news.is_valid().to_numpy(zero_copy_only=False))
            left, origins = left.take(index), [origins[i] for i in index.tolist()]
        left_keys = outcome.left_keys.take(pa.array(index))
        if len(index):
            self._context.sensor.on_emitted(self._context.task_id, self._name, len(index))
        return Rows(
            rows.place.take(outcome.left_rows[index]).extend(2 * outcome.left_numbers[index]),
            left.timestamps,
            spec.key_serde.decode(left_keys),
            spec.value_serde.decode(left.news),
            None if left.headers is None or not any(left.headers) else list(left.headers),
            spec.value_serde.decode(left.olds),
            origins=origins,
        )

    def _origins(self, outcome: BufferChanges) -> list[RecordContext | None]:
        """Return the records that the changes came with; those that follow see them as their own."""
        origins = _origins(outcome.left)
        if self._raw is None:
            return [*origins]
        contexts = self._raw.take(to_bytes_list(outcome.left_keys), origins)
        self._raw.end()
        return contexts

    def _note(self, rows: Rows, outcome: BufferChanges) -> None:
        """Note the values that others see of the batch's keys, from place to place."""
        spec, held = self._buffer.spec, outcome.held
        decode = spec.key_serde.decode
        began, left_rows = outcome.began, outcome.left_rows
        olds = Column.nulls(len(began)) if rows.olds is None else rows.olds.take(began)
        began_keys = rows.keys.take(began)
        parts = np.concatenate([np.full(len(began), -1, np.int64), 2 * outcome.left_numbers + 1])
        self._view.note(
            rows.place.take(np.concatenate([began, left_rows])).extend(parts),
            (
                Column.concat([began_keys, decode(outcome.left_keys)]),
                Column.concat([olds, Column.nulls(len(left_rows))]),
                np.repeat(np.array([_HELD, _NOT_HELD]), [len(began), len(left_rows)]),
            ),
            (  # of equal keys the last one counts
                Column.concat([began_keys, decode(held.keys)]),
                Column.concat([Column.nulls(len(began)), spec.value_serde.decode(held.changes.priors)]),
                np.repeat(np.array([_NOT_HELD, _HELD]), [len(began), len(held.keys)]),
            ),
        )


def _origins(left: ChangeColumns) -> list[RecordContext]:
    """Return the records that changes came with."""
    names = [None if topic is None else topic.decode() for topic in left.topics.to_pylist()]
    headers = left.headers or [()] * len(left)
    stamps = left.timestamps.tolist()
    return list(map(RecordContext, names, left.partitions.tolist(), left.offsets.tolist(), stamps, headers))


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {Suppress: _Suppress}
