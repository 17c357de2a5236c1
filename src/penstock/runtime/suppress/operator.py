"""The operator that holds a table's changes back: Kafka's ``KTableSuppressProcessor``.

What a suppression holds back: row by row, exact for every buffer and the reference, and over columns.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.errors import ProcessingError
from penstock.runtime.batches_of_one import step_of_batches
from penstock.runtime.fold.columns import RowGroups, group_keys
from penstock.runtime.operator import Operator, RowStep
from penstock.runtime.rows import FEW, NO_OLD, RecordContext, Row, Rows
from penstock.runtime.tables import StoreTableView, is_read
from penstock.serde.base import decode_rows, encode_only, encode_rows, row_decoder, row_encoder
from penstock.serde.bound_serdes import plain_headers
from penstock.serde.column import Column, bytes_column, large_binary, series_of, to_bytes_list
from penstock.serde.windowed import Windowed, WindowedColumn
from penstock.state.views.change_buffer import BufferedChange, ChangeBufferView, change_size
from penstock.state.views.change_columns import ChangeColumns, concat_changes, lengths
from penstock.topology.operations.definitions import Operation, Suppress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.serde.base import Serde
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["Buffer", "FACTORIES", "Held", "SuppressedView", "hold", "outcome_of"]


class BufferBounds(NamedTuple):
    """The records and bytes that a buffer may hold, and the reaction of a full one."""

    records: int | None
    size: int | None
    emit_early: bool

    @classmethod
    def of(cls, operation: Suppress) -> BufferBounds:
        return cls(operation.max_records, operation.max_bytes, operation.emit_early)

    @property
    def is_bounded(self) -> bool:
        """Whether a buffer can be full."""
        return self.records is not None or self.size is not None

    def exceeded(self, records: int, size: int) -> bool:
        return (self.records is not None and records > self.records) or (self.size is not None and size > self.size)


@dataclass(frozen=True)
class Held:
    """The changes that waited before the batch, of the batch's keys."""

    keys: pa.Array
    changes: ChangeColumns


@dataclass(frozen=True)
class BufferChanges:
    """The changes of a batch to the buffer.

    Attributes:
        began: Rows that began to wait.
        left_rows: For each change that left, the row after which it did; in the order of leaving.
        left_numbers: Its number among those that left after that row.
        left_keys: Its key.
        left: The change.
        held: The changes that waited before the batch.
    """

    began: NDArray[np.int64]
    left_rows: NDArray[np.int64]
    left_numbers: NDArray[np.int64]
    left_keys: pa.Array
    left: ChangeColumns
    held: Held


class Buffer(Protocol):
    """A buffer that is read and written key by key."""

    @property
    def records(self) -> int: ...

    @property
    def size(self) -> int: ...

    def get(self, key: bytes) -> BufferedChange | None: ...

    def put(self, key: bytes, change: BufferedChange, before: BufferedChange | None) -> None: ...

    def remove(self, key: bytes, change: BufferedChange) -> None: ...

    def due(self, until: int) -> Iterator[tuple[int, bytes]]: ...

    def first(self) -> tuple[int, bytes] | None: ...


class RowChange(NamedTuple):
    """The change that one row holds back; the time is that of a buffer that has nothing of its key yet."""

    key: bytes
    change: BufferedChange


class Eviction(NamedTuple):
    """A change that leaves after a row, with its number among those of that row."""

    row: int
    number: int
    key: bytes
    change: BufferedChange


def hold(buffer: Buffer, key: bytes, change: BufferedChange) -> None:
    """Hold a change back, in place of the one that waits under its key, whose place in the order it takes."""
    before = buffer.get(key)
    if before is not None:
        change = BufferedChange(before.time, *change[1:6], before.prior, *change[7:])
    buffer.put(key, change, before)


def leaving_after(buffer: Buffer, row: int, expiry: int) -> Iterator[Eviction]:
    """Yield the changes that leave after a row, numbered; each waits until the next step."""
    for number, (_, key) in enumerate(buffer.due(expiry)):
        leaving = buffer.get(key)
        assert leaving is not None  # noqa: S101 - both rows of a key are written together
        yield Eviction(row, number, key, leaving)
        buffer.remove(key, leaving)


def evictions(
    buffer: Buffer, puts: Iterable[RowChange], expiries: list[int], bounds: BufferBounds, full: Callable[[int], None]
) -> Iterator[Eviction]:
    """Hold each row's change back and yield those that leave after it; each is in the buffer until the next step.

    Args:
        buffer: The waiting changes.
        puts: One for each row.
        expiries: For each row the buffer time up to which changes leave.
        bounds: Of the buffer.
        full: Called with the row that has filled a buffer that must not be full.
    """
    for row, ((key, change), expiry) in enumerate(zip(puts, expiries, strict=True)):
        hold(buffer, key, change)
        number = 0
        for eviction in leaving_after(buffer, row, expiry):
            yield eviction
            number += 1
        if bounds.is_bounded and bounds.exceeded(buffer.records, buffer.size):
            if not bounds.emit_early:
                full(row)
                continue
            while bounds.exceeded(buffer.records, buffer.size) and (earliest := buffer.first()) is not None:
                leaving = buffer.get(earliest[1])
                assert leaving is not None  # noqa: S101 - as above
                yield Eviction(row, number, earliest[1], leaving)
                buffer.remove(earliest[1], leaving)
                number += 1


class BatchBuffer:
    """The buffer during one batch: entries that the batch touches are held in memory and written at the end."""

    def __init__(self, view: ChangeBufferView, keys: list[bytes]) -> None:
        self._view = view
        distinct = list(dict.fromkeys(keys))
        packed = view.get_packed(distinct)
        self._now: dict[bytes, BufferedChange | None] = {
            key: None if data is None else BufferedChange.unpack(data)
            for key, data in zip(distinct, packed, strict=True)
        }
        self.before = dict(self._now)
        self.records, self.size = view.records, view.size
        self._low = view.low
        self._fresh: list[tuple[int, bytes]] = []
        self._stored = iter(view.in_order(None))
        self._next: tuple[int, bytes] | None = None
        self._opened = False

    def get(self, key: bytes) -> BufferedChange | None:
        if key not in self._now:
            self._now[key] = self.before[key] = self._view.get(key)
        return self._now[key]

    def put(self, key: bytes, change: BufferedChange, before: BufferedChange | None) -> None:
        self._now[key] = change
        self.size += change_size(key, change)
        if before is None:
            self.records += 1
            heapq.heappush(self._fresh, (change.time, key))
            self._low = min(self._low, change.time)
        else:
            self.size -= change_size(key, before)

    def remove(self, key: bytes, change: BufferedChange) -> None:
        if self._next == (change.time, key):
            self._next = next(self._stored, None)
        else:
            heapq.heappop(self._fresh)
        self._now[key] = None
        self.records -= 1
        self.size -= change_size(key, change)
        self._low = change.time

    def due(self, until: int) -> Iterator[tuple[int, bytes]]:
        if self._low > until:
            return
        while (earliest := self.first()) is not None and earliest[0] <= until:
            yield earliest
        self._low = until + 1

    def first(self) -> tuple[int, bytes] | None:
        if not self._opened:
            self._next, self._opened = next(self._stored, None), True
        return min((one for one in (self._next, *self._fresh[:1]) if one is not None), default=None)

    def write(self) -> None:
        """Write the changes of the batch."""
        gone: list[tuple[int, bytes]] = []
        fresh: list[tuple[int, bytes]] = []
        keys: list[bytes] = []
        packed: list[bytes] = []
        for key, now in self._now.items():
            before = self.before[key]
            if before is not None and (now is None or now.time != before.time):
                gone.append((before.time, key))
            if now is not None and now is not before:
                if before is None or now.time != before.time:
                    fresh.append((now.time, key))
                keys.append(key)
                packed.append(now.pack())
        self._view.write(gone, fresh, keys, packed)
        self._view.count(self.records - self._view.records, self.size - self._view.size, self._low)


def puts_of(keys: pa.Array, puts: ChangeColumns) -> list[RowChange]:
    """Return the rows one by one."""
    columns = zip(
        puts.times.tolist(),
        puts.timestamps.tolist(),
        to_bytes_list(puts.topics),
        puts.partitions.tolist(),
        puts.offsets.tolist(),
        puts.headers or repeat(()),
        to_bytes_list(puts.priors),
        to_bytes_list(puts.olds),
        to_bytes_list(puts.news),
        strict=False,  # there may be no headers at all
    )
    return [RowChange(key or b"", BufferedChange(*one)) for key, one in zip(to_bytes_list(keys), columns, strict=True)]


def outcome_of(
    puts: list[RowChange], done: list[Eviction], before: Mapping[bytes, BufferedChange | None]
) -> BufferChanges:
    """Return the result of the row loop as columns.

    Args:
        puts: The rows.
        done: The changes that have left.
        before: The changes that waited before, of all the keys that are in ``puts`` or ``done``.
    """
    waited = {key: change for key, change in before.items() if change is not None}
    held = set(waited)
    leaving = iter([*done, None])
    following = next(leaving)
    began: list[int] = []
    for row, put in enumerate(puts):
        if put.key not in held:
            held.add(put.key)
            began.append(row)
        while following is not None and following.row == row:
            held.discard(following.key)
            following = next(leaving)
    return BufferChanges(
        np.array(began, np.int64),
        np.array([one.row for one in done], np.int64),
        np.array([one.number for one in done], np.int64),
        bytes_column([one.key for one in done]),
        ChangeColumns.of([one.change for one in done]),
        Held(bytes_column(list(waited)), ChangeColumns.of(list(waited.values()))),
    )


def hold_back(
    view: ChangeBufferView, keys: pa.Array, puts: ChangeColumns, expiries: NDArray[np.int64], bounds: BufferBounds
) -> BufferChanges | None:
    """Hold the changes of a batch back and write the buffer; return None when the buffer might become too full.

    Args:
        view: The buffer.
        keys: The key of each row, in bytes.
        puts: The change of each row, as if nothing waited for its key.
        expiries: For each row the buffer time up to which changes leave after it.
        bounds: Of the buffer.
    """
    groups = group_keys(Column.of_series(series_of(keys)), view.spec.key_serde)
    distinct = keys.take(pa.array(groups.first))
    packed = bytes_column(view.get_packed([key or b"" for key in to_bytes_list(distinct)]))
    waiting = np.flatnonzero(packed.is_valid().to_numpy(zero_copy_only=False))
    touched = ChangeColumns.unpack(packed.drop_null())
    if not _fits(view, keys, puts, len(groups) - len(waiting), bounds):
        return None
    held_keys = distinct.take(pa.array(waiting))
    untouched_keys, untouched = _leaving(view, int(expiries[-1]), set(to_bytes_list(distinct)))
    held = Held(pa.concat_arrays([held_keys, untouched_keys]), concat_changes(touched, untouched))
    chains = _Chains(groups, waiting, touched.times, puts.times, expiries)
    count, size = len(puts), len(waiting)
    # Of every stretch: whose time it has, whose change is its last, and after which row it leaves.
    first = np.concatenate([chains.heads, count + np.arange(size), count + size + np.arange(len(untouched))])
    last = np.concatenate([chains.lasts, chains.held_lasts(count), count + size + np.arange(len(untouched))])
    exits = np.concatenate([chains.exits, chains.held_exits, np.searchsorted(expiries, untouched.times)])
    times = np.concatenate([puts.times, held.changes.times])[first]
    all_keys = pa.concat_arrays([keys, held.keys])
    leaves = exits < count
    _Stretches(all_keys, puts, held, first, last, leaves).write(view, int(expiries[-1]))
    gone = np.flatnonzero(leaves)
    order = pl.DataFrame(
        {"exit": exits[gone], "time": times[gone], "key": series_of(all_keys.take(pa.array(last[gone])))}
    )
    gone = gone[order.select(pl.arg_sort_by("exit", "time", "key")).to_series().cast(pl.Int64).to_numpy()]
    rows = exits[gone]
    fresh = np.flatnonzero(np.diff(rows, prepend=-1))
    numbers = np.arange(len(rows)) - np.repeat(fresh, np.diff(fresh, append=len(rows)))
    left = concat_changes(puts, held.changes).take(last[gone])
    return BufferChanges(np.sort(chains.heads), rows, numbers, all_keys.take(pa.array(last[gone])), left, held)


def _fits(view: ChangeBufferView, keys: pa.Array, puts: ChangeColumns, new_keys: int, bounds: BufferBounds) -> bool:
    """Return whether the buffer stays within its bounds even if nothing leaves: a bound from above."""
    if bounds.records is None and bounds.size is None:
        return True
    size = 0
    if bounds.size is not None:
        alone = replace(puts, priors=pa.nulls(len(puts), pa.large_binary()))
        size = view.size + int(alone.sizes(keys).sum() + np.maximum(lengths(puts.olds), 0).sum())
    return not bounds.exceeded(view.records + new_keys, size)


def _leaving(view: ChangeBufferView, until: int, touched: set[bytes | None]) -> tuple[pa.Array, ChangeColumns]:
    """Return the changes that leave by that time, of keys that the batch has no row of."""
    keys = [key for _, key in view.in_order(until) if key not in touched] if view.low <= until else []
    return bytes_column(keys), ChangeColumns.unpack(bytes_column(view.get_packed(keys)))


class _Chains:
    """The stretches of the keys that the batch has rows of.

    ``heads`` are the rows that begin to wait, ``lasts`` the rows whose changes they end as, ``exits`` the rows after
    which these leave (the number of rows: they stay). The changes that waited before have a stretch each, too.
    """

    def __init__(
        self,
        groups: RowGroups,
        waiting: NDArray[np.int64],
        waiting_times: NDArray[np.int64],
        times: NDArray[np.int64],
        expiries: NDArray[np.int64],
    ) -> None:
        segments = groups.segments
        count = len(times)
        order, codes = segments.order, segments.codes
        ends = np.append(segments.starts[1:], count)
        exits = np.maximum(order, np.searchsorted(expiries, times[order]))
        rank = codes * (count + 1) + order  # ascending: by key, then by row
        following = np.searchsorted(rank, codes * (count + 1) + exits, side="right")
        self.held_exits = np.searchsorted(expiries, waiting_times)
        starts = segments.starts.copy()
        starts[waiting] = np.searchsorted(rank, waiting * (count + 1) + self.held_exits, side="right")
        begins = starts[starts < ends]
        heads = np.flatnonzero(_reachable(begins, np.where(following < ends[codes], following, count), count))
        self.heads, self.lasts, self.exits = order[heads], order[following[heads] - 1], exits[heads]
        self._held_last = np.where(starts[waiting] > segments.starts[waiting], order[starts[waiting] - 1], -1)

    def held_lasts(self, count: int) -> NDArray[np.int64]:
        """Return the row whose change each waiting one has become, or its own number behind those of the rows."""
        return np.where(self._held_last >= 0, self._held_last, count + np.arange(len(self._held_last)))


def _reachable(begins: NDArray[np.int64], following: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Return the rows reached from the beginnings by following the pointers; ``count`` is the end.

    The length of the steps doubles from round to round.
    """
    pointers = np.append(following, count)
    reached = np.zeros(count + 1, np.bool_)
    reached[begins] = True
    while True:
        before = np.flatnonzero(reached[:count])
        if (pointers[before] == count).all():
            return reached[:count]
        reached[pointers[before]] = True
        pointers = pointers[pointers]


@dataclass(frozen=True)
class _Stretches:
    """All stretches of a batch, in which a key's change waits.

    Attributes:
        keys: The keys of the rows, then of the changes that waited before.
        puts: The change of each row, as if nothing waited for its key.
        held: The changes that waited before.
        first: The row that each stretch has its time from; held changes count behind the rows.
        last: The row whose change is its last.
        leaves: Whether it ends within the batch.
    """

    keys: pa.Array
    puts: ChangeColumns
    held: Held
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    leaves: NDArray[np.bool_]

    def write(self, view: ChangeBufferView, expiry: int) -> None:
        """Write the contents of the buffer after the batch; all up to the buffer time ``expiry`` has left."""
        keys, puts, held = self.keys, self.puts, self.held
        first, last, leaves = self.first, self.last, self.leaves
        count = len(puts)
        was_held = first >= count
        gone = first[was_held & leaves] - count
        stays = ~leaves & (last < count)
        fresh = stays & ~was_held
        times = np.concatenate([puts.times, held.changes.times])
        begun, ended = first[stays], last[stays]
        now = puts.take(ended)
        priors = pa.concat_arrays([puts.olds, held.changes.priors]).take(pa.array(begun))
        now = replace(now, times=times[begun], priors=priors)
        now_keys = keys.take(pa.array(ended))
        gone_keys = held.keys.take(pa.array(gone))
        view.write(
            zip(held.changes.times[gone].tolist(), _bytes(gone_keys), strict=True),
            zip(times[first[fresh]].tolist(), _bytes(keys.take(pa.array(last[fresh]))), strict=True),
            _bytes(now_keys),
            _bytes(now.pack()),
        )
        replaced = first[stays & was_held] - count
        over = np.concatenate([gone, replaced])
        freed = held.changes.take(over).sizes(held.keys.take(pa.array(over))).sum() if len(over) else 0
        size = int(now.sizes(now_keys).sum() - freed)
        low = min([max(view.low, expiry + 1), *times[first[fresh]].tolist()])
        view.count(int(fresh.sum()) - len(gone), size, low)


def _bytes(data: pa.Array) -> list[bytes]:
    return [one or b"" for one in to_bytes_list(data)]


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
        self.makes_many = True
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
            if buffer.low > now - wait_ms:
                continue
            if len(stamps) == 1:
                return self._leave(rows, row, now - wait_ms)  # each still waits while it is passed on
            leaving += self._leave(rows, row, now - wait_ms)
        return leaving

    def row_step(self) -> RowStep | None:
        if not self._takes_few:
            return step_of_batches(self, self._context)
        spec, context, name, meta = self._buffer.spec, self._context, self._name, self._meta
        encode_key, encode = row_encoder(spec.key_serde), row_encoder(spec.value_serde)
        decode_key, decode = row_decoder(spec.key_serde), row_decoder(spec.value_serde)
        until_close, wait_ms = self._operation.until_window_closes, self._operation.wait_ms

        def leave(leaving: Iterator[Eviction]) -> Iterator[Row]:
            for eviction in leaving:  # each still waits while it is passed on
                if self._is_sent(eviction):
                    change = eviction.change
                    context.sensor.on_emitted(context.task_id, name, 1)
                    origin = self._origin(eviction)
                    key, new, old = decode_key(eviction.key), decode(change.new), decode(change.old)
                    yield Row(change.timestamp, key, new, change.headers, old, origin)

        def step(row: Row) -> Iterable[Row] | None:
            if until_close and type(row.key) is not Windowed:
                return (each for _, rows in self._few(row.rows(context.step)) for each in Row.each_of(rows))
            buffer, stamp = self._buffer, row.timestamp
            now = max(context.get_meta(meta, _NO_TIME), stamp)
            context.put_meta(meta, now)
            key, old = encode_key(row.key) or b"", None if row.old is NO_OLD else encode(row.old)
            source = context.input.record(0)
            topic = None if source.topic is None else source.topic.encode()
            headers = plain_headers(row.headers) if row.headers else ()
            time = row.key.window.end if until_close else stamp
            new = encode(row.value)
            hold(
                buffer,
                key,
                BufferedChange(time, stamp, topic, source.partition, source.offset, headers, old, old, new),
            )
            return None if buffer.low > now - wait_ms else leave(leaving_after(buffer, 0, now - wait_ms))

        return step

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
