"""What a suppression holds back: row by row, exact for every buffer and the reference, and over columns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.runtime.fold.columns import RowGroups, group_keys
from penstock.serde.column import Column, bytes_column, series_of, to_bytes_list
from penstock.state.views.change_buffer import BufferedChange, ChangeBufferView, change_size
from penstock.state.views.change_columns import ChangeColumns, concat_changes, lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.topology.operations.base import Suppress

__all__ = [
    "BatchBuffer",
    "Buffer",
    "BufferBounds",
    "BufferChanges",
    "Eviction",
    "Held",
    "RowChange",
    "evictions",
    "hold",
    "hold_back",
    "leaving_after",
    "outcome_of",
    "puts_of",
]


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

    def first(self, until: int | None) -> tuple[int, bytes] | None: ...


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
    number = 0
    while (earliest := buffer.first(expiry)) is not None:
        key = earliest[1]
        leaving = buffer.get(key)
        assert leaving is not None  # noqa: S101 - both rows of a key are written together
        yield Eviction(row, number, key, leaving)
        buffer.remove(key, leaving)
        number += 1


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
            while bounds.exceeded(buffer.records, buffer.size) and (earliest := buffer.first(None)) is not None:
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

    def first(self, until: int | None) -> tuple[int, bytes] | None:
        if until is not None and self._low > until:
            return None
        if not self._opened:
            self._next, self._opened = next(self._stored, None), True
        earliest = min((one for one in (self._next, *self._fresh[:1]) if one is not None), default=None)
        if until is not None and (earliest is None or earliest[0] > until):
            self._low = until + 1
            return None
        return earliest

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
