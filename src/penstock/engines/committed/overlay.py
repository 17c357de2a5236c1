"""Committed changes over a replica that does not have them yet.

A worker brings its replica to the end of batch N when batch N + 1 starts. The changes of later committed batches are in
segments, whose keys are sorted: each is a layer over the replica, and is only searched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from penstock.state.base import Entries
from penstock.state.overlay import ReadableMap, merged
from penstock.state.segments.segment import Segment

__all__ = ["Layer", "LayeredMap"]

Rows = tuple[list[bytes], list[bytes | None]]


class Layer:
    """One segment; the changes of a store are decoded on first use."""

    __slots__ = ("_rows", "_segment", "batch", "checksum", "meta", "previous", "size_bytes")

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._rows: dict[str, Rows | None] = {}
        self.batch = segment.batch
        self.checksum = segment.checksum
        self.previous = (segment.head.previous, segment.head.previous_checksum)
        self.meta = segment.head.meta
        self.size_bytes = segment.size_bytes

    def rows(self, store: str) -> Rows | None:
        """Return a store's keys in byte order and values (None deletes); None if it has no changes."""
        if store not in self._rows:
            keys: list[bytes] = []
            values: list[bytes | None] = []
            for some_keys, some_values in self._segment.changes(store):
                keys += some_keys
                values += some_values
            self._rows[store] = (keys, values) if keys else None
        return self._rows[store]


class LayeredMap:
    """A readable map: a base, and the rows of layers over it, the newest last."""

    __slots__ = ("_base", "_layers")

    def __init__(self, base: ReadableMap, layers: Sequence[Rows]) -> None:
        self._base = base
        self._layers = layers

    def __len__(self) -> int:
        newest: dict[bytes, bytes | None] = {}
        for keys, values in self._layers:
            newest.update(zip(keys, values, strict=True))
        below = self._base.get_many(list(newest))
        there = zip(newest.values(), below, strict=True)
        return len(self._base) + sum((new is not None) - (old is not None) for new, old in there)

    def get(self, key: bytes) -> bytes | None:
        for keys, values in reversed(self._layers):
            at = bisect_left(keys, key)
            if at < len(keys) and keys[at] == key:
                return values[at]
        return self._base.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys] if self._layers else self._base.get_many(keys)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries with start <= key < end in byte order."""
        found = self._base.scan(start, end, reverse=reverse)
        for keys, values in self._layers:
            low = 0 if start is None else bisect_left(keys, start)
            high = len(keys) if end is None else bisect_left(keys, end)
            own = list(zip(keys[low:high], values[low:high], strict=True))
            if own:
                found = merged(own[::-1] if reverse else own, found, reverse=reverse)
        return found

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        if not self._layers:
            return self._base.scan_many(ranges)
        return [list(self.scan(start, end)) for start, end in ranges]

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        """Return the keys and values of `scan`; None if there are more than ``limit``."""
        if not self._layers:
            return self._base.read(start, end, limit)
        entries = list(islice(self.scan(start, end), limit + 1))
        return None if len(entries) > limit else ([key for key, _ in entries], [value for _, value in entries])
