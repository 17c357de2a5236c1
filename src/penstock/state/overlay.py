"""Overlays: the rows of the open commit, over the committed rows that it started from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
import pyarrow as pa

from penstock.state.base import CHANGES_SCHEMA, Entries
from penstock.state.memory import KeyOrder, unknown_store

if TYPE_CHECKING:
    from penstock.state.journal import Journal

__all__ = ["Overlay", "Put", "ReadableMap", "TaskOverlay", "merged"]


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
        series = [pl.Series("", list(column), dtype=pl.Binary) for column in (changes.keys(), changes.values())]
        order = series[0].arg_sort()
        columns = [column[order].to_arrow().cast(pa.large_binary()) for column in series]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES_SCHEMA)
