"""Key-value stores whose entries go some time after they were written: an extra that Kafka lacks.

Time is the task's stream time. An entry is there until stream time has moved on by the time to live since its last put;
that is looked at with each read, so it does not depend on how the input is cut into batches. What has gone is deleted
from the front of an index by time, now and then.

Rows of the map: ``0 + key`` holds the time of the put (8 bytes BE) and the value, ``1 + time + key`` nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from penstock.state.base import ByteMap
from penstock.state.views.keyvalue import OrderedView, key_bytes
from penstock.state.views.prefixed import PrefixedMap
from penstock.state.views.retention import NUMBER
from penstock.topology.stores import StoreSpec

__all__ = ["ExpiringView"]

_SWEEPS = 16  # a time to live


class ExpiringView(OrderedView):
    """A key-value store with ``spec.ttl_ms``.

    Args:
        spec: The store.
        entries: Its rows.
        meta: The task's small numbers.
        now: Gives the stream time; by default the one at the end of what the task has read.
    """

    def __init__(
        self,
        spec: StoreSpec,
        entries: ByteMap,
        meta: MutableMapping[str, int],
        now: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(spec, PrefixedMap(entries, b"\x00"))
        self._entries = entries
        self._by_time = PrefixedMap(entries, b"\x01")
        self._meta = meta
        self._now = now or (lambda: meta.get("stream_time", -1))
        self._swept_name = f"{spec.name}/swept"

    def at(self, now: Callable[[], int]) -> ExpiringView:
        """The same store by another clock: a processor's own, which stands at its present record."""
        return ExpiringView(self.spec, self._entries, self._meta, now)

    def _load(self, data: bytes | None) -> Any:
        return None if data is None or self._has_gone(data) else self._values.deserialize(data[8:])

    def _load_entries(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        return super()._load_entries(entry for entry in entries if not self._has_gone(entry[1]))

    def _has_gone(self, data: bytes) -> bool:
        written: int = NUMBER.unpack_from(data)[0]
        return written + self.spec.ttl_ms <= self._now()

    def put(self, key: Any, value: Any) -> None:
        """Sets the value, whose time to live begins; None deletes."""
        data, dumped = key_bytes(self.spec, key), self._values.serialize(value)
        now = self._now()
        self._sweep(now)
        old = self._map.get(data)
        if old is not None:
            self._by_time.put(old[:8] + data, None)
        if dumped is None:
            self._map.put(data, None)
        else:
            self._map.put(data, NUMBER.pack(now) + dumped)
            self._by_time.put(NUMBER.pack(now) + data, b"")

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
        old = self.get(key)
        self.put(key, None)
        return old

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """The values under the keys, None where there is none."""
        return [self.get(key) for key in keys]

    def approximate_num_entries(self) -> int:
        """How many entries are there; looks at all of them."""
        return sum(1 for _ in self.all())

    def _sweep(self, now: int) -> None:
        if now < self._meta.get(self._swept_name, 0) + self.spec.ttl_ms // _SWEEPS:
            return
        self._meta[self._swept_name] = now
        gone = [row for row, _ in self._by_time.scan(None, NUMBER.pack(max(now - self.spec.ttl_ms, -1) + 1))]
        self._by_time.put_many(gone, [None] * len(gone))
        self._map.put_many([row[8:] for row in gone], [None] * len(gone))
