"""Ordered maps of bytes between operators and storage: committed rows in replicas, and overlays over them.

An overlay has the rows of the open commit, over the committed rows that it started from. A replica holds committed rows
with the position that they stand for: the one here is in memory, `penstock.state.lmdb_replicas` has that on the disk.
A journal notes what a step has written into the maps of a task, so that it can be taken back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any, Protocol

import pyarrow as pa
from sortedcontainers import SortedList

from penstock.base.clock import boot_id, since_boot_ms, unix_ms
from penstock.base.nearest_name import did_you_mean
from penstock.errors import StateError
from penstock.topology.stores import StoreSpec

__all__ = [
    "CHANGES_SCHEMA",
    "NO_BATCH",
    "ByteMap",
    "CountedOverlay",
    "Entries",
    "ExpiringMap",
    "Journal",
    "Journalled",
    "MemoryMap",
    "MemoryReplica",
    "MemoryTaskState",
    "Overlay",
    "Pieces",
    "Put",
    "ReadableMap",
    "Replica",
    "ReplicaPosition",
    "ReplicaRows",
    "TaskOverlay",
    "TaskState",
    "count_calls",
    "merged",
    "take_calls",
    "time_notes",
    "time_since",
]


NO_BATCH = -1  # before the first micro-batch, and of what is no micro-batch


# Journals


class Journalled(Protocol):
    """A map that tells a journal what it is about to change.

    Attributes:
        journal: The journal, while a step is under way that may have to be taken back.
    """

    journal: Journal | None

    def mark(self) -> Any:
        """Return what its writes change beside its entries."""
        ...

    def restore(self, keys: Sequence[bytes], befores: Sequence[Any]) -> None:
        """Set entries to what they were when they were noted."""
        ...

    def back_to(self, mark: Any) -> None:
        """Set the rest to what it was at a mark."""
        ...


class Journal:
    """The earlier contents of all entries that a step has changed."""

    def __init__(self) -> None:
        self._marks: list[tuple[Journalled, Any]] = []
        self._undo: list[Callable[[], object]] = []

    def begin(self, maps: Iterable[Journalled]) -> None:
        """Begin a step that writes into these maps."""
        for entries in maps:
            self.watch(entries)

    def watch(self, entries: Journalled) -> None:
        """Note from now on what is written into one more map."""
        entries.journal = self
        self._marks.append((entries, entries.mark()))

    def note(self, entries: Journalled, keys: Sequence[bytes], befores: Sequence[Any]) -> None:
        """Note entries of a map that is about to change them."""
        self._undo.append(lambda: entries.restore(keys, befores))

    def on_take_back(self, undo: Callable[[], object]) -> None:
        """Note how something else is undone."""
        self._undo.append(undo)

    def end(self) -> None:
        """End the step: what it has written stays."""
        for entries, _ in self._marks:
            entries.journal = None
        self._marks, self._undo = [], []

    def take_back(self) -> None:
        """End the step, and undo what it has written."""
        marks, undo = self._marks, self._undo
        self.end()
        for each in reversed(undo):
            each()
        for entries, mark in marks:
            entries.back_to(mark)


# Interfaces

CHANGES_SCHEMA = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])
Entries = tuple[list[bytes], list[bytes]]


class ByteMap(Protocol):
    """An ordered map of bytes, as the present batch sees it: committed state plus the batch's own writes."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None deletes."""
        ...

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None: ...

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries with start <= key < end (None: open) in byte order."""
        ...

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        """Return the entries of each range (start, end) as `scan` does; faster for many small ones."""
        ...

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        """Return keys and values of `scan`, all at once and so faster; None when there are more than ``limit``."""
        ...


class ExpiringMap(ByteMap, Protocol):
    """A map that can forget its front, as window and session stores need."""

    def expire(self, end: bytes) -> None:
        """Mark entries with keys below ``end`` as expired; they are deleted, now or over the next batches."""
        ...


class TaskState(Protocol):
    """All stores of one task, and its small numbers (``meta``), which are committed together."""

    def map(self, store: str) -> ByteMap: ...

    @property
    def meta(self) -> MutableMapping[str, int]: ...


# In memory

_FEW = 64
_SINGLE = 8  # so many keys are taken out of the order one by one


class KeyOrder:
    """The order of a dict's keys, computed on first use and kept up to date from then on.

    Stores that are never scanned, which are most, pay nothing for being ordered. Of many keys that are removed at once
    it is only noted, until they are half of all.
    """

    __slots__ = ("_gone", "_keys", "_sorted", "_waiting")

    def __init__(self, keys: Mapping[bytes, object]) -> None:
        self._keys = keys
        self._sorted: SortedList | None = None
        self._waiting: set[bytes] = set()
        self._gone: set[bytes] = set()

    def add_one(self, key: bytes) -> None:
        """Add a key; to be called before it goes into the dict."""
        if self._sorted is not None and key not in self._keys:
            if key in self._gone:
                self._gone.remove(key)
            else:
                self._waiting.add(key)

    def add(self, keys: Iterable[bytes]) -> None:
        """Add keys; to be called before the keys go into the dict."""
        if self._sorted is not None:
            fresh = [key for key in keys if key not in self._keys]
            if self._gone:
                back = self._gone.intersection(fresh)
                self._gone -= back
                self._waiting.update(key for key in fresh if key not in back)
            else:
                self._waiting.update(fresh)

    def remove(self, key: bytes) -> None:
        """Remove a key; to be called for a key that was in the dict."""
        if self._sorted is not None:
            if key in self._waiting:
                self._waiting.remove(key)
            else:
                self._sorted.remove(key)

    def remove_many(self, keys: list[bytes]) -> None:
        """Remove different keys."""
        if len(keys) <= _SINGLE:
            for key in keys:
                self.remove(key)
        elif self._sorted is not None:
            waiting = self._waiting.intersection(keys)
            self._waiting -= waiting
            self._gone.update(key for key in keys if key not in waiting)

    def between(self, start: bytes | None, end: bytes | None, *, reverse: bool) -> list[bytes]:
        """Return the keys with start <= key < end."""
        if self._sorted is None and not self._keys:
            return []
        keys = self._current().irange(start, end, inclusive=(True, False), reverse=reverse)
        gone = self._gone
        return [key for key in keys if key not in gone] if gone else list(keys)

    def between_each(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[bytes]]:
        """Return the keys of each range (start, end)."""
        ordered = self._current()
        if not ordered:
            return [[] for _ in ranges]
        keys_of_ranges = [list(ordered.irange(start, end, (True, False))) for start, end in ranges]
        gone = self._gone
        return [[key for key in keys if key not in gone] for keys in keys_of_ranges] if gone else keys_of_ranges

    def _current(self) -> SortedList:
        if self._sorted is None or len(self._gone) > max(_FEW, len(self._sorted) // 2):
            self._sorted = SortedList(self._keys)
            self._gone.clear()
            self._waiting.clear()
        elif len(self._waiting) == 1:
            self._sorted.add(self._waiting.pop())
        elif self._waiting:
            self._sorted.update(self._waiting)
            self._waiting.clear()
        return self._sorted


class MemoryMap:
    """A byte map over a dict; point reads and writes, nearly all accesses, cost as much as a dict's.

    ``is_touched`` becomes true with a write; who asks for it sets it back.
    """

    __slots__ = ("_data", "_expired", "_order", "is_touched", "journal")

    def __init__(self, entries: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._data: dict[bytes, bytes] = dict(entries)
        self._expired = b""
        self._order = KeyOrder(self._data)
        self.is_touched = False
        self.journal: Journal | None = None

    def __len__(self) -> int:
        return len(self._data)

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._data.get, keys))

    def put(self, key: bytes, value: bytes | None) -> None:
        self.is_touched = True
        if self.journal is not None:
            self.journal.note(self, (key,), (self._data.get(key),))
        if value is not None:
            self._order.add_one(key)
            self._data[key] = value
        elif key in self._data:
            self._order.remove(key)
            del self._data[key]

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self.is_touched = True
        self._put_many(keys, values)

    def _put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        data = self._data
        if self.journal is not None:
            self.journal.note(self, keys, self.get_many(keys))
        if len(keys) <= _SINGLE:
            for key, value in zip(keys, values, strict=True):
                if value is not None:
                    self._order.add_one(key)
                    data[key] = value
                elif key in data:
                    self._order.remove(key)
                    del data[key]
            return
        if None in values:
            last = dict(zip(keys, values, strict=True))
            gone = [key for key, value in last.items() if value is None and key in data]
            self._order.remove_many(gone)
            for key in gone:
                del data[key]
            kept = {key: value for key, value in last.items() if value is not None}
            self._order.add(kept)
            data.update(kept)
            return
        self._order.add(keys)
        data.update(zip(keys, values, strict=True))  # type: ignore[arg-type]

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries in byte order; writes during the scan are allowed, as in Kafka's in-memory stores.

        The keys are those at the time of the call, the values those at the time of each step.
        """
        return self._entries(self._order.between(start, end, reverse=reverse))

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        data = self._data
        return [[(key, data[key]) for key in keys] for keys in self._order.between_each(ranges)]

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        """Return keys and values of `scan`; None when there are more than ``limit``."""
        keys = self._order.between(start, end, reverse=False)
        return None if len(keys) > limit else (keys, [self._data[key] for key in keys])

    def expire(self, end: bytes) -> None:
        """Delete the entries with keys below ``end``."""
        if end > self._expired:
            self._expired = end
            keys = self._order.between(None, end, reverse=False)
            self._put_many(keys, [None] * len(keys))

    def mark(self) -> Any:
        """Return what its writes change beside the entries, for `back_to`."""
        return self.is_touched, self._expired

    def restore(self, keys: Sequence[bytes], befores: Sequence[bytes | None]) -> None:
        """Set entries to what they were."""
        self._put_many(keys, befores)

    def back_to(self, mark: Any) -> None:
        """Set to what it was at a mark."""
        self.is_touched, self._expired = mark

    def _entries(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for key in keys:
            value = self._data.get(key)
            if value is not None:
                yield key, value


class MemoryTaskState:
    """All stores of one task in memory.

    Args:
        specs: The stores of the task.
    """

    def __init__(self, specs: Iterable[StoreSpec]) -> None:
        self._maps = {spec.name: MemoryMap() for spec in specs}
        self._meta: dict[str, int] = {}

    def add(self, spec: StoreSpec) -> None:
        """Add a store."""
        self._maps[spec.name] = MemoryMap()

    def map(self, store: str) -> MemoryMap:
        store_map = self._maps.get(store)
        if store_map is None:
            raise unknown_store(store, self._maps)
        return store_map

    @property
    def meta(self) -> MutableMapping[str, int]:
        return self._meta

    def take_touched(self) -> list[str]:
        """Return the stores that have been written since the last call."""
        touched = [name for name, entries in self._maps.items() if entries.is_touched]
        for name in touched:
            self._maps[name].is_touched = False
        return touched


# Overlays


def unknown_store(store: str, stores: Iterable[str]) -> StateError:
    """Return the error for a store that the task does not have, with the nearest names."""
    names = sorted(stores)
    hint = did_you_mean(store, names, 3) or f"The stores of this task are {names}."
    return StateError(f"there is no state store {store!r} in this task", hint=hint, store=store)


class ReadableMap(Protocol):
    """The reading half of a byte map."""

    def __len__(self) -> int: ...

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]: ...

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None: ...


_FEWEST_EXPIRED = 100_000  # rows that a batch deletes at most if it writes little: they are held in memory
_FEW_CHANGES = 1_000  # below, a sort in Polars takes longer to begin than Python's takes
Put = tuple[bytes, bytes | None, int]  # key, value, time


class _Absent:
    __slots__ = ()


_ABSENT = _Absent()


class Overlay:
    """A byte map that keeps its writes apart from the map below.

    Args:
        base: The map below; it is never changed. An overlay may lie over another one.
    """

    __slots__ = ("_base", "_expired_below", "_order", "changes", "journal", "puts")

    def __init__(self, base: ReadableMap) -> None:
        self._base = base
        self.changes: dict[bytes, bytes | None] = {}
        self.puts: list[Put] = []  # noted by stores whose rows do not show them
        self._order = KeyOrder(self.changes)
        self._expired_below: bytes | None = None
        self.journal: Journal | None = None

    @property
    def base(self) -> ReadableMap:
        """The map below."""
        return self._base

    def rebase(self, base: ReadableMap) -> None:
        """Forget the writes and read through to another base."""
        self._base = base
        self.changes = {}
        self.puts = []
        self._order = KeyOrder(self.changes)
        self._expired_below = None

    def __len__(self) -> int:
        changed = list(self.changes)
        before = self._base.get_many(changed) if len(self._base) else [None] * len(changed)
        now = self.changes.values()
        return len(self._base) + sum(
            (new is not None) - (old is not None) for new, old in zip(now, before, strict=True)
        )

    def get(self, key: bytes) -> bytes | None:
        value = self.changes.get(key, _ABSENT)
        return self._base.get(key) if isinstance(value, _Absent) else value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        changes = self.changes
        if not changes:
            return self._base.get_many(keys)
        values: list[bytes | _Absent | None] = [changes.get(key, _ABSENT) for key in keys]
        below = [i for i, value in enumerate(values) if value is _ABSENT]
        for i, value in zip(below, self._base.get_many([keys[i] for i in below]), strict=True):
            values[i] = value
        return values  # type: ignore[return-value]

    def put(self, key: bytes, value: bytes | None) -> None:
        if self.journal is not None:
            self.journal.note(self, (key,), self._own((key,)))
        self._order.add_one(key)
        self.changes[key] = value

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        if self.journal is not None:
            self.journal.note(self, keys, self._own(keys))
        self._order.add(keys)
        self.changes.update(zip(keys, values, strict=True))

    def _own(self, keys: Sequence[bytes]) -> list[Any]:
        """Return the changes of keys; `_ABSENT` where there is none."""
        return list(map(self.changes.get, keys, repeat(_ABSENT)))

    def mark(self) -> Any:
        """Return what its writes change beside the changes, for `back_to`."""
        return len(self.puts), self._expired_below

    def restore(self, keys: Sequence[bytes], befores: Sequence[Any]) -> None:
        """Set the changes of keys to what they were."""
        for key, before in zip(keys, befores, strict=True):
            if before is _ABSENT:
                self.changes.pop(key, None)
            else:
                self.changes[key] = before

    def back_to(self, mark: Any) -> None:
        """Forget what has been noted since a mark."""
        self._order = KeyOrder(self.changes)
        del self.puts[mark[0] :]
        self._expired_below = mark[1]

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries as they are at the time of the call; later writes are not seen, as in Kafka's RocksDB."""
        if not self.changes:  # then they need not be put in order
            return self._base.scan(start, end, reverse=reverse)
        own = [(key, self.changes[key]) for key in self._order.between(start, end, reverse=reverse)]
        base = self._base.scan(start, end, reverse=reverse)
        return merged(own, base, reverse=reverse) if own else base

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        if not self.changes:
            return self._base.scan_many(ranges)
        return [list(self.scan(start, end)) for start, end in ranges]

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        """Return keys and values of `scan`; None when there are more than ``limit``."""
        if not self.changes:
            return self._base.read(start, end, limit)
        entries = list(islice(self.scan(start, end), limit + 1))
        return None if len(entries) > limit else ([key for key, _ in entries], [value for _, value in entries])

    def expire(self, end: bytes) -> None:
        """Mark entries with keys below ``end`` for `delete_expired`."""
        self._expired_below = end

    def delete_expired(self) -> None:
        """Delete entries that `expire` has marked, at the end of a batch.

        All of them could fill the memory, so a batch deletes no more than twice what it writes, and the next ones go
        on: to be called in each batch in which the store is written.
        """
        if self._expired_below is not None:
            most = max(_FEWEST_EXPIRED, 2 * len(self.changes))
            expired_keys = [key for key, _ in islice(self._base.scan(None, self._expired_below), most)]
            self.put_many(expired_keys, [None] * len(expired_keys))


def merged(
    own: list[tuple[bytes, bytes | None]], base: Iterator[tuple[bytes, bytes]], *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of both in one order; an own entry hides the one below it."""
    below = next(base, None)
    for key, value in own:
        while below is not None and (below[0] > key if reverse else below[0] < key):
            yield below
            below = next(base, None)
        if below is not None and below[0] == key:
            below = next(base, None)
        if value is not None:
            yield key, value
    yield from chain(() if below is None else (below,), base)


class TaskOverlay:
    """The overlays of all stores of a task, and its numbers, during one batch, then during the next: a `TaskState`.

    Args:
        batch: The batch.
        maps: Store -> its committed rows.
        meta: The committed numbers.
    """

    def __init__(self, batch: int, maps: Mapping[str, ReadableMap], meta: Mapping[str, int]) -> None:
        self.batch = batch
        self._maps = {store: Overlay(base) for store, base in maps.items()}
        self._committed_meta = dict(meta)
        self._meta = dict(meta)

    def rebase(self, batch: int, maps: Mapping[str, ReadableMap], meta: Mapping[str, int]) -> None:
        """Continue with another batch; views that were opened on this state go with it."""
        self.batch = batch
        for store, overlay in self._maps.items():
            overlay.rebase(maps[store])
        self._committed_meta = dict(meta)
        self._meta.clear()
        self._meta.update(meta)

    def map(self, store: str) -> Overlay:
        store_map = self._maps.get(store)
        if store_map is None:
            raise unknown_store(store, self._maps)
        return store_map

    @property
    def meta(self) -> dict[str, int]:
        return self._meta

    @property
    def maps(self) -> Mapping[str, Overlay]:
        """The stores by name."""
        return self._maps

    def wrap(self, make: Callable[[Overlay], Overlay]) -> None:
        """Put other overlays in the place of the present ones, which have no changes; before any view is opened."""
        self._maps = {store: make(overlay) for store, overlay in self._maps.items()}

    @property
    def is_changed(self) -> bool:
        """Whether the batch has written anything."""
        return self._meta != self._committed_meta or any(overlay.changes for overlay in self._maps.values())

    def sorted_changes(self) -> dict[str, pa.RecordBatch]:
        """Return store -> its changes (`CHANGES_SCHEMA`) in the order of the keys' bytes, of the stores that have any.

        Deletes a piece of the expired entries, which is among the changes.
        """
        for overlay in self._maps.values():
            overlay.delete_expired()
        return {store: _sorted(overlay.changes) for store, overlay in self._maps.items() if overlay.changes}

    def puts(self, store: str) -> list[Put]:
        """Return the puts that a versioned store has noted in this batch."""
        return self.map(store).puts


def _sorted(changes: dict[bytes, bytes | None]) -> pa.RecordBatch:
    if len(changes) < _FEW_CHANGES:
        keys, values = zip(*sorted(changes.items()), strict=True)
        columns = [pa.array(column, pa.large_binary()) for column in (keys, values)]
    else:
        import polars as pl  # a worker of connectors, which stores objects, does not load it

        series = [pl.Series("", list(column), dtype=pl.Binary) for column in (changes.keys(), changes.values())]
        order = series[0].arg_sort()
        columns = [column[order].to_arrow().cast(pa.large_binary()) for column in series]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES_SCHEMA)


# Counted calls


class CountedOverlay(Overlay):
    """An overlay that counts its calls, their keys and their time.

    Args:
        uncounted: The overlay whose place it takes, without changes yet.
    """

    __slots__ = ("calls",)

    def __init__(self, uncounted: Overlay) -> None:
        super().__init__(uncounted.base)
        self.calls: dict[str, list[float]] = {}

    def get(self, key: bytes) -> bytes | None:
        began = time.perf_counter()
        value = super().get(key)
        self._note("get", 1, began)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        began = time.perf_counter()
        values = super().get_many(keys)
        self._note("get", len(keys), began)
        return values

    def put(self, key: bytes, value: bytes | None) -> None:
        began = time.perf_counter()
        super().put(key, value)
        self._note("delete" if value is None else "put", 1, began)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        began = time.perf_counter()
        super().put_many(keys, values)
        deleted = sum(value is None for value in values)
        if deleted:
            self._note("delete", deleted, began)
        if deleted < len(values):
            self._note("put", len(values) - deleted, began)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        began = time.perf_counter()
        entries = super().scan(start, end, reverse=reverse)
        self._note("all" if start is None and end is None else "range", 1, began)
        return entries

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        began, ranges = time.perf_counter(), list(ranges)
        if self.changes:  # each range is a scan, which counts itself
            return super().scan_many(ranges)
        entries = super().scan_many(ranges)
        self._note("range", len(ranges), began)
        return entries

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        if self.changes:
            return super().read(start, end, limit)
        began = time.perf_counter()
        entries = super().read(start, end, limit)
        self._note("range", 1, began)
        return entries

    def _note(self, call: str, keys: int, began: float) -> None:
        numbers = self.calls.setdefault(call, [0, 0.0])
        numbers[0] += keys
        numbers[1] += time.perf_counter() - began


def count_calls(state: TaskOverlay) -> None:
    """Count the calls of a task's stores from now on; before any view is opened."""
    if not any(isinstance(overlay, CountedOverlay) for overlay in state.maps.values()):
        state.wrap(CountedOverlay)


def take_calls(state: TaskOverlay) -> dict[tuple[str, str], list[float]]:
    """Return (store, call) -> keys and seconds since the last time; nothing unless they are counted."""
    calls: dict[tuple[str, str], list[float]] = {}
    for store, overlay in state.maps.items():
        if isinstance(overlay, CountedOverlay):
            calls |= {(store, call): numbers for call, numbers in overlay.calls.items()}
            overlay.calls = {}
    return calls


# Replicas


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """The position of a replica.

    Attributes:
        batch: Micro-batches: the batch up to which it holds all.
        head: Micro-batches: its newest segment.
        checksum: The checksum of that segment.
        meta: The task's numbers.
        notes: Further facts, as JSON holds them: the positions of a stream thread's replica in its changelogs.
    """

    batch: int = NO_BATCH
    head: int = NO_BATCH
    checksum: str = ""
    meta: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def dump(self) -> bytes:
        """Return the position as JSON; without notes as earlier versions wrote it, which know none."""
        facts = {"batch": self.batch, "head": self.head, "checksum": self.checksum, "meta": self.meta}
        return json.dumps(facts | {"notes": self.notes} if self.notes else facts).encode()

    @classmethod
    def load(cls, data: bytes | None) -> ReplicaPosition:
        """Return the position that `dump` wrote; the beginning for None.

        Raises:
            ValueError: It is not one.

        >>> ReplicaPosition.load(ReplicaPosition(3, 3, "ab", {"stream_time": 7}).dump()).meta
        {'stream_time': 7}
        """
        if not data:
            return cls()
        facts = json.loads(data)
        try:
            return cls(**facts)
        except TypeError as error:
            raise ValueError(f"not the position of a replica: {error}") from error


def time_notes() -> dict[str, Any]:
    """Return the present time as a replica notes it, for `time_since`."""
    return {"noted_ms": unix_ms(), "boot": [boot_id(), since_boot_ms()]}


def time_since(noted_ms: int, boot: tuple[str, int]) -> int | None:
    """Return the milliseconds since a replica noted its position; None if that is not known, as the clock was set back.

    A wall clock may be set, so within one start of the machine the clock that runs since then counts.

    Args:
        noted_ms: The wall-clock time of the note.
        boot: The id of the machine's start at the note, and the milliseconds since that start.
    """
    boot_then, at_ms = boot
    if boot_then and boot_then == boot_id():
        return since_boot_ms() - at_ms
    away_ms = unix_ms() - noted_ms
    return away_ms if away_ms >= 0 else None


Pieces = Callable[[str], Iterable[tuple[list[bytes], list[bytes | None]]]]


class ReplicaRows(Protocol):
    """The rows of a replica at one moment, the same for all stores; to be closed."""

    def map(self, store: str) -> ReadableMap: ...
    def close(self) -> None: ...


class Replica(Protocol):
    """Committed rows with the position that they stand for (in LMDB: `LmdbReplica`)."""

    position: ReplicaPosition

    def apply(
        self, stores: Sequence[str], changes: Pieces, position: ReplicaPosition, *, fresh: bool = False
    ) -> None: ...
    def clear(self, stores: Iterable[str], position: ReplicaPosition) -> None: ...
    def reset(self) -> None: ...
    def give_back(self) -> bool: ...
    def reader(self) -> ReplicaRows: ...
    def close(self) -> None: ...


class MemoryReplica:
    """A replica without a file, which is gone with its process."""

    def __init__(self, stores: Iterable[str]) -> None:
        self._maps = {store: MemoryMap() for store in stores}
        self.position = ReplicaPosition()

    def apply(
        self,
        stores: Sequence[str],
        changes: Pieces,
        position: ReplicaPosition,
        *,
        fresh: bool = False,  # noqa: ARG002 - of no use here
    ) -> None:
        for store in stores:
            for keys, values in changes(store):
                self._maps[store].put_many(keys, values)
        self.position = position

    def clear(self, stores: Iterable[str], position: ReplicaPosition) -> None:
        for store in stores:
            self._maps[store] = MemoryMap()
        self.position = position

    def reset(self) -> None:
        self.clear(list(self._maps), ReplicaPosition())

    def give_back(self) -> bool:
        """Return False: there is nothing to give back."""
        return False

    def reader(self) -> MemoryReplica:
        return self

    def map(self, store: str) -> MemoryMap:
        return self._maps[store]

    def close(self) -> None:
        """Do nothing: as a reader it holds nothing."""
