"""Stores that keep only the keys used last: Kafka's ``MemoryNavigableLRUCache``.

Rows of the map: ``0 + key`` holds a sequence number and the value, ``1 + sequence number (8 bytes BE)`` the key. The
number grows with every use of the key, so the least recently used row comes first.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from penstock.base.java_names import with_java_names_of
from penstock.state.base import ByteMap
from penstock.state.views.keys import key_bytes
from penstock.state.views.prefixed import IndexedView
from penstock.topology.stores import StoreSpec

__all__ = ["LruView"]


@with_java_names_of("KeyValueStore")
class LruView(IndexedView):
    """A key-value store of at most ``spec.max_entries`` keys; a put or get makes a key the last to go.

    ``get_many`` counts as a use of each key; ranges and scans do not count.
    """

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        super().__init__(spec, entries, meta)
        self._next_name = f"{spec.name}/next-use"
        self._size_name = f"{spec.name}/size"

    def get(self, key: Any) -> Any:
        """Return the value under the key, or None; counts as a use."""
        data = key_bytes(self.spec, key)
        entry = self._map.get(data)
        if entry is not None:
            self._use(data, entry[8:], entry)
        return self._load(entry)

    def put(self, key: Any, value: Any) -> None:
        """Set the value; None deletes. With one key too many, the least recently used one is removed."""
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
                use, oldest = next(self._index.scan())
                self._index.put(use, None)
                self._map.put(oldest, None)
                size -= 1
            self._meta[self._size_name] = size

    def delete(self, key: Any) -> Any:
        """Remove the key; return its value."""
        data = key_bytes(self.spec, key)
        entry = self._map.get(data)
        self._map.put(data, None)  # even of a key that is not there: its changelog has the deletion, as Kafka's
        if entry is not None:
            self._index.put(entry[:8], None)
            self._meta[self._size_name] = self.approximate_num_entries() - 1
        return self._load(entry)

    def approximate_num_entries(self) -> int:
        """Return the number of keys."""
        return self._meta.get(self._size_name, 0)

    def _use(self, key: bytes, value: bytes, before: bytes | None) -> None:
        number = self._meta.get(self._next_name, 0)
        self._meta[self._next_name] = number + 1
        use = number.to_bytes(8, "big")
        if before is not None:
            self._index.put(before[:8], None)
        self._map.put(key, use + value)
        self._index.put(use, key)
