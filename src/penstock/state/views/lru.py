"""Stores that keep only the keys used last: Kafka's ``MemoryNavigableLRUCache``.

Rows of the map: ``0 + key`` holds a sequence number and the value, ``1 + sequence number (8 bytes BE)`` the key. The
number grows with every use of the key, so the row that was not used for longest comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

from penstock.state.base import ByteMap
from penstock.state.views.keyvalue import OrderedView, key_bytes
from penstock.state.views.prefixed import PrefixedMap
from penstock.topology.stores import StoreSpec

__all__ = ["LruView"]

_ENTRY = b"\x00"
_USE = b"\x01"


class LruView(OrderedView):
    """A key-value store of at most ``spec.max_entries`` keys; a put or get makes a key the last to go.

    Ranges and scans do not count as uses.
    """

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        super().__init__(spec, PrefixedMap(entries, _ENTRY))
        self._uses = PrefixedMap(entries, _USE)
        self._meta = meta
        self._next_name = f"{spec.name}/next-use"
        self._size_name = f"{spec.name}/size"

    def _load(self, data: bytes | None) -> Any:
        return None if data is None else self._values.deserialize(data[8:])

    def get(self, key: Any) -> Any:
        """The value under the key, or None; counts as a use."""
        data = key_bytes(self.spec, key)
        entry = self._map.get(data)
        if entry is not None:
            self._use(data, entry[8:], entry)
        return self._load(entry)

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """The values under the keys, None where there is none; counts as a use of each."""
        return [self.get(key) for key in keys]

    def put(self, key: Any, value: Any) -> None:
        """Sets the value; None deletes. One key too many, and the one not used for longest goes."""
        dumped = self._values.serialize(value)
        if dumped is None:
            self.delete(key)
            return
        data = key_bytes(self.spec, key)
        entry = self._map.get(data)
        self._use(data, dumped, entry)
        if entry is None:
            size = self.approximate_num_entries() + 1
            if size > self.spec.max_entries:
                use, oldest = next(self._uses.scan())
                self._uses.put(use, None)
                self._map.put(oldest, None)
                size -= 1
            self._meta[self._size_name] = size

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Sets the value if there is none; gives what was there before."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_many(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Puts all (key, value) pairs; Kafka's ``putAll``."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> Any:
        """Removes the key; gives what was under it."""
        data = key_bytes(self.spec, key)
        entry = self._map.get(data)
        if entry is not None:
            self._map.put(data, None)
            self._uses.put(entry[:8], None)
            self._meta[self._size_name] = self.approximate_num_entries() - 1
        return self._load(entry)

    def approximate_num_entries(self) -> int:
        """How many keys there are."""
        return self._meta.get(self._size_name, 0)

    def _use(self, key: bytes, value: bytes, before: bytes | None) -> None:
        number = self._meta.get(self._next_name, 0)
        self._meta[self._next_name] = number + 1
        use = number.to_bytes(8, "big")
        if before is not None:
            self._uses.put(before[:8], None)
        self._map.put(key, use + value)
        self._uses.put(use, key)
