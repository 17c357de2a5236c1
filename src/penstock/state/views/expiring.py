"""Key-value stores whose entries expire some time after they were written: an extra that Kafka lacks.

Time is the task's stream time. An entry is there until stream time has moved on by the time to live since its last put;
that is checked with each read, so it does not depend on how the input is cut into batches. Expired entries are deleted
from the front of an index by time, now and then.

Rows of the map: ``0 + key`` holds the time of the put (8 bytes BE) and the value, ``1 + time + key`` nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

from penstock.base.java_names import with_java_names_of
from penstock.state.base import ByteMap
from penstock.state.views.keys import key_bytes
from penstock.state.views.prefixed import IndexedView
from penstock.state.views.retention import NUMBER
from penstock.topology.stores import StoreSpec

__all__ = ["ExpiringView"]

_SWEEPS = 16  # a time to live


@with_java_names_of("KeyValueStore")
class ExpiringView(IndexedView):
    """A key-value store with ``spec.ttl_ms``.

    Args:
        spec: The store.
        entries: Its rows.
        meta: The task's small numbers.
        now: Returns the stream time; by default the one at the end of the task's input.
    """

    def __init__(
        self,
        spec: StoreSpec,
        entries: ByteMap,
        meta: MutableMapping[str, int],
        now: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(spec, entries, meta)
        self._entries = entries
        self._now = now or (lambda: meta.get("stream_time", -1))
        self._swept_name = f"{spec.name}/swept"

    def at(self, now: Callable[[], int]) -> ExpiringView:
        """Return the same store by another clock: a processor's own, which stands at its present record."""
        return ExpiringView(self.spec, self._entries, self._meta, now)

    def _load(self, data: bytes | None) -> Any:
        return None if data is None or self._has_gone(data) else self._values.deserialize(data[8:])

    def _load_entries(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        return super()._load_entries(entry for entry in entries if not self._has_gone(entry[1]))

    def _has_gone(self, data: bytes) -> bool:
        written: int = NUMBER.unpack_from(data)[0]
        return written + self.spec.ttl_ms <= self._now()

    def put(self, key: Any, value: Any) -> None:
        """Set the value, whose time to live begins; None deletes."""
        data, dumped = key_bytes(self.spec, key), self._values.serialize(value)
        now = self._now()
        self._sweep(now)
        old = self._map.get(data)
        if old is not None:
            self._index.put(old[:8] + data, None)
        if dumped is None:
            self._map.put(data, None)
        else:
            self._map.put(data, NUMBER.pack(now) + dumped)
            self._index.put(NUMBER.pack(now) + data, b"")

    def delete(self, key: Any) -> Any:
        """Remove the key; return its value."""
        old = self.get(key)
        self.put(key, None)
        return old

    def approximate_num_entries(self) -> int:
        """Return the number of entries; looks at all of them."""
        return sum(1 for _ in self.all())

    def _sweep(self, now: int) -> None:
        if now < self._meta.get(self._swept_name, 0) + self.spec.ttl_ms // _SWEEPS:
            return
        self._meta[self._swept_name] = now
        gone = [row for row, _ in self._index.scan(None, NUMBER.pack(max(now - self.spec.ttl_ms, -1) + 1))]
        self._index.put_many(gone, [None] * len(gone))
        self._map.put_many([row[8:] for row in gone], [None] * len(gone))
