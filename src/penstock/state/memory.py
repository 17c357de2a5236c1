"""State in memory, for the test driver and for stores that are not persistent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

from penstock.base.nearest_name import did_you_mean
from penstock.errors import StateError
from penstock.state.base import Entries
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from penstock.state.journal import Journal

__all__ = ["KeyOrder", "MemoryMap", "MemoryTaskState", "unknown_store"]


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


def unknown_store(store: str, stores: Iterable[str]) -> StateError:
    """Return the error for a store that the task does not have, with the nearest names."""
    names = sorted(stores)
    hint = did_you_mean(store, names, 3) or f"The stores of this task are {names}."
    return StateError(f"there is no state store {store!r} in this task", hint=hint, store=store)
