"""A part of a byte map as a map of its own: the rows whose keys start with a byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.state.base import ByteMap, Entries

__all__ = ["PrefixedMap"]


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
        """Entries with start <= key < end (None: open) in byte order."""
        last = self._end if end is None else self._prefix + end
        found = self._map.scan(self._prefix + (start or b""), last, reverse=reverse)
        return ((key[1:], value) for key, value in found)

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        found = self._map.scan_many([(self._prefix + start, self._prefix + end) for start, end in ranges])
        return [[(key[1:], value) for key, value in entries] for entries in found]

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        found = self._map.read(self._prefix + start, self._prefix + end, limit)
        return None if found is None else ([key[1:] for key in found[0]], found[1])
