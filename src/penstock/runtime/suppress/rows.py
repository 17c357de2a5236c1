"""Suppression row by row: exact for every buffer, and the reference for the columns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from penstock.runtime.suppress.model import BufferBounds, BufferChanges, Held
from penstock.serde.column import bytes_column, to_bytes_list
from penstock.state.views.change_buffer import BufferedChange, ChangeBufferView, change_size
from penstock.state.views.change_columns import ChangeColumns

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["BatchBuffer", "Buffer", "Eviction", "RowChange", "evictions", "outcome_of", "puts_of"]


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
    for row, (put, expiry) in enumerate(zip(puts, expiries, strict=True)):
        key, change = put
        before = buffer.get(key)
        if before is not None:
            change = change._replace(time=before.time, prior=before.prior)
        buffer.put(key, change, before)
        number = 0
        until: int | None = expiry
        while (found := buffer.first(until)) is not None:
            leaving = buffer.get(found[1])
            assert leaving is not None  # noqa: S101 - both rows of a key are written together
            yield Eviction(row, number, found[1], leaving)
            buffer.remove(found[1], leaving)
            number += 1
        if bounds.exceeded(buffer.records, buffer.size):
            if not bounds.emit_early:
                full(row)
                continue
            while bounds.exceeded(buffer.records, buffer.size) and (found := buffer.first(None)) is not None:
                leaving = buffer.get(found[1])
                assert leaving is not None  # noqa: S101 - as above
                yield Eviction(row, number, found[1], leaving)
                buffer.remove(found[1], leaving)
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
        found = min((one for one in (self._next, *self._fresh[:1]) if one is not None), default=None)
        if until is not None and (found is None or found[0] > until):
            self._low = until + 1
            return None
        return found

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
