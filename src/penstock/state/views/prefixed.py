"""Parts of a byte map as maps of their own, and key-value views that keep an index in a second part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from penstock.state.base import ByteMap, Entries
from penstock.state.views.keyvalue import OrderedView
from penstock.topology.stores import StoreSpec

__all__ = ["IndexedView", "PrefixedMap"]


class PrefixedMap:
    """`penstock.state.base.ByteMap` over the rows behind a prefix of one byte."""

    def __init__(self, entries: ByteMap, prefix: bytes) -> None:
        self._map = entries
        self._prefix = prefix
        self._end = bytes([prefix[0] + 1])

    def get(self, key: bytes) -> bytes | None:
        return self._map.get(self._prefix + key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._map.get_many([self._prefix + key for key in keys])

    def put(self, key: bytes, value: bytes | None) -> None:
        self._map.put(self._prefix + key, value)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self._map.put_many([self._prefix + key for key in keys], values)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries with start <= key < end (None: open) in byte order."""
        last = self._end if end is None else self._prefix + end
        entries = self._map.scan(self._prefix + (start or b""), last, reverse=reverse)
        return ((key[1:], value) for key, value in entries)

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        entries_of_ranges = self._map.scan_many([(self._prefix + start, self._prefix + end) for start, end in ranges])
        return [[(key[1:], value) for key, value in entries] for entries in entries_of_ranges]

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        entries = self._map.read(self._prefix + start, self._prefix + end, limit)
        return None if entries is None else ([key[1:] for key in entries[0]], entries[1])


class IndexedView(OrderedView):
    """The base of key-value views with an index of their entries.

    Rows of the map: ``0 + key`` holds 8 bytes for the index and the value, the rows of the index begin with ``1``.

    Args:
        spec: The store.
        entries: Its rows.
        meta: The task's small numbers.
    """

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        super().__init__(spec, PrefixedMap(entries, b"\x00"))
        self._index = PrefixedMap(entries, b"\x01")
        self._meta = meta

    def _load(self, data: bytes | None) -> Any:
        return None if data is None else self._values.deserialize(data[8:])

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """Return the values under the keys, None where there is none."""
        return [self.get(key) for key in keys]

    def put(self, key: Any, value: Any) -> None:
        """Set the value; None deletes."""
        raise NotImplementedError

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value if there is none; return the present one."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_many(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Put all (key, value) pairs; Kafka's ``putAll``."""
        for key, value in entries:
            self.put(key, value)
