"""State in memory: what the test driver and stores that are not persistent use."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, MutableMapping, Sequence

from sortedcontainers import SortedList

from penstock.errors import StateError
from penstock.topology.stores import StoreSpec

__all__ = ["MemoryMap", "MemoryTaskState", "unknown_store"]


class MemoryMap:
    """A byte map over a dict; the order of its keys is worked out when somebody first asks for it.

    Point reads and writes, which are nearly all there is, cost what a dict costs. New keys wait in a set until the
    next scan sorts them in.
    """

    __slots__ = ("_data", "_order", "_unsorted")

    def __init__(self, entries: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._data: dict[bytes, bytes] = dict(entries)
        self._order: SortedList = SortedList()
        self._unsorted: set[bytes] = set(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._data.get, keys))

    def put(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            if self._data.pop(key, None) is not None and key not in self._unsorted:
                self._order.remove(key)
            self._unsorted.discard(key)
            return
        if key not in self._data:
            self._unsorted.add(key)
        self._data[key] = value

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        if None in values:
            for key, value in zip(keys, values, strict=True):
                self.put(key, value)
            return
        self._unsorted.update(set(keys).difference(self._data))
        self._data.update(zip(keys, values, strict=True))  # type: ignore[arg-type]

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Entries in byte order; writes during the scan are allowed, as Kafka's in-memory stores allow them.

        The keys are those at the time of the call, the values those at the time of each step.
        """
        if self._unsorted:
            self._order.update(self._unsorted)
            self._unsorted.clear()
        keys = list(self._order.irange(start, end, inclusive=(True, False), reverse=reverse))
        return self._entries(keys)

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
        found = self._maps.get(store)
        if found is None:
            raise unknown_store(store, self._maps)
        return found

    @property
    def meta(self) -> MutableMapping[str, int]:
        return self._meta


def unknown_store(store: str, known: Iterable[str]) -> StateError:
    """The error for a store that the task does not have, with the nearest names."""
    names = sorted(known)
    near = difflib.get_close_matches(store, names)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"The stores of this task are {names}."
    return StateError(f"there is no state store {store!r} in this task", hint=hint, store=store)
