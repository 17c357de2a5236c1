"""The buffer of a suppressed table: its newest change of each key, in the order in which they will leave.

Kafka's ``InMemoryTimeOrderedKeyValueChangeBuffer``. A key has two rows: ``k<key>`` holds the change, ``t<time><key>``
stands in the order of leaving. Their number, their size as Kafka counts it, and a time before which nothing leaves are
kept with the task's numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import NamedTuple

from penstock.state.maps import ByteMap
from penstock.state.views import header_entries
from penstock.topology.stores import StoreSpec

__all__ = [
    "FIXED",
    "OVERHEAD",
    "SAME",
    "BufferedChange",
    "ChangeBufferView",
    "change_size",
    "old_source",
    "pack_headers",
    "unpack_headers",
]

FIXED = struct.Struct(">qqqiiiii")  # buffer time, timestamp, offset, partition; lengths of prior, old, new, topic
_LENGTH = struct.Struct(">i")
_NULL = -1
SAME = -2  # in place of the old value's length: it is the prior value
_HERE = b"\x01"
_NEVER = (1 << 63) - 1
_NO_SOURCE = header_entries.NO_HEADERS + b"\xff" * 8
OVERHEAD = 8 + 8 + 8 + 4  # bytes that Kafka counts for buffer time, timestamp, offset and partition

Headers = tuple[tuple[str, bytes | None], ...]


class BufferedChange(NamedTuple):
    """A change that waits, in bytes, with the record that it came from.

    ``prior`` is the value before the first change that was held back, which the suppressed table still shows.
    """

    time: int
    timestamp: int
    topic: bytes | None
    partition: int
    offset: int
    headers: Headers
    prior: bytes | None
    old: bytes | None
    new: bytes | None

    def pack(self) -> bytes:
        prior, old, new, topic = self.prior, self.old, self.new, self.topic
        same = old is not None and old == prior
        fixed = FIXED.pack(
            self.time,
            self.timestamp,
            self.offset,
            self.partition,
            _NULL if prior is None else len(prior),
            SAME if same else _NULL if old is None else len(old),
            _NULL if new is None else len(new),
            _NULL if topic is None else len(topic),
        )
        headers = pack_headers(self.headers) if self.headers else b""
        return b"".join((fixed, prior or b"", b"" if same else old or b"", new or b"", topic or b"", headers))

    @classmethod
    def unpack(cls, data: bytes) -> BufferedChange:
        time, timestamp, offset, partition, *lengths = FIXED.unpack_from(data)
        at = FIXED.size
        parts: list[bytes | None] = []
        for length in lengths:
            if length < 0:
                parts.append(parts[0] if length == SAME else None)
            else:
                parts.append(data[at : at + length])
                at += length
        prior, old, new, topic = parts
        headers = unpack_headers(data[at:]) if at < len(data) else ()
        return cls(time, timestamp, topic, partition, offset, headers, prior, old, new)


def _length(data: bytes | None) -> int:
    return _NULL if data is None else len(data)


def pack_headers(headers: Headers) -> bytes:
    """Return names and values, each after its length; nothing for no headers."""
    out = bytearray()
    for name, value in headers:
        encoded = name.encode()
        out += _LENGTH.pack(len(encoded)) + encoded + _LENGTH.pack(_length(value)) + (value or b"")
    return bytes(out)


def unpack_headers(data: bytes) -> Headers:
    """Return the headers in the result of `pack_headers`."""
    headers: list[tuple[str, bytes | None]] = []
    at = 0
    while at < len(data):
        start = at + 4
        end = start + _LENGTH.unpack_from(data, at)[0]
        length = _LENGTH.unpack_from(data, end)[0]
        at = end + 4 + max(length, 0)
        headers.append((data[start:end].decode(), None if length == _NULL else data[end + 4 : at]))
    return tuple(headers)


def change_size(key: bytes, change: BufferedChange) -> int:
    """Return the bytes that Kafka counts for a buffered change."""
    _, _, topic, _, _, headers, prior, old, new = change
    size = OVERHEAD + len(key) + len(prior or b"") + len(new or b"") + len(topic or b"")
    if old != prior:
        size += len(old or b"")
    return size + sum([len(name) + len(value or b"") for name, value in headers]) if headers else size


def old_source(before: BufferedChange | None) -> bytes:
    """Return headers and timestamp of the record before, whose value is a change's old one; none of the first change.

    In the bytes of an entry that keeps headers, which stand before a change in a store that does.
    """
    if before is None:
        return _NO_SOURCE
    return header_entries.pack_headers(before.headers) + before.timestamp.to_bytes(8, "big", signed=True)


class ChangeBufferView:
    """The buffer, one key at a time or many."""

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        self.spec = spec
        self.name = spec.name
        self._map = entries
        self._meta = meta
        self._records, self._bytes, self._low = (f"{spec.name}/{what}" for what in ("records", "bytes", "low"))
        self._following: int | None = None  # a bound for what follows the change that `due` has yielded

    @property
    def records(self) -> int:
        """The number of waiting keys."""
        return self._meta.get(self._records, 0)

    @property
    def size(self) -> int:
        """Their size in bytes as Kafka counts it."""
        return self._meta.get(self._bytes, 0)

    @property
    def low(self) -> int:
        """A lower bound of the buffer times of all keys."""
        return self._meta.get(self._low, _NEVER)

    def get(self, key: bytes) -> BufferedChange | None:
        """Return the change that waits under the key's bytes."""
        row = self._map.get(b"k" + key)
        return None if row is None else BufferedChange.unpack(self._packed(row))

    def get_packed(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the changes that wait under many keys, packed."""
        rows = self._map.get_many([b"k" + key for key in keys])
        return [None if row is None else self._packed(row) for row in rows] if self.spec.keeps_headers else rows

    def _packed(self, row: bytes) -> bytes:
        """Return the packed change in a row, without the source of its old value."""
        return row[header_entries.unpack_headers(row)[1] + 8 :] if self.spec.keeps_headers else row

    def put(self, key: bytes, change: BufferedChange, before: BufferedChange | None) -> None:
        """Hold a change back in place of ``before``, whose place in the order it takes."""
        if before is None:
            self._map.put(_place(change.time, key), _HERE)
            self._following = None
            self.count(1, change_size(key, change), min(self.low, change.time))
        else:
            self.count(0, change_size(key, change) - change_size(key, before), self.low)
        front = old_source(before if change.old is not None else None) if self.spec.keeps_headers else b""
        self._map.put(b"k" + key, front + change.pack())

    def remove(self, key: bytes, change: BufferedChange) -> None:
        """Take out the first change."""
        self._map.put(b"k" + key, None)
        self._map.put(_place(change.time, key), None)
        low, self._following = self._following, None
        self.count(-1, -change_size(key, change), change.time if low is None else low)

    def write(
        self,
        gone: Iterable[tuple[int, bytes]],
        fresh: Iterable[tuple[int, bytes]],
        keys: list[bytes],
        packed: list[bytes],
    ) -> None:
        """Write the changes of a batch: (time, key) that have left and that have come, and the keys' changes."""
        self._following = None
        fresh = list(fresh)
        if self.spec.keeps_headers:
            packed = self._with_sources(keys, packed, {key for _, key in fresh})
        left = list(gone)
        self._map.put_many([_place(*one) for one in left], [None] * len(left))
        self._map.put_many([b"k" + key for _, key in left], [None] * len(left))
        came = [_place(*one) for one in fresh]
        self._map.put_many(came, [_HERE] * len(came))
        self._map.put_many([b"k" + key for key in keys], packed)

    def _with_sources(self, keys: list[bytes], packed: list[bytes], fresh: set[bytes]) -> list[bytes]:
        """Return packed changes behind the headers and timestamps of their old values."""
        rows = []
        for key, change, before in zip(keys, packed, self.get_packed(keys), strict=True):
            has_old = FIXED.unpack_from(change)[5] != _NULL
            is_known = has_old and before is not None and key not in fresh
            rows.append(old_source(BufferedChange.unpack(before) if is_known and before else None) + change)
        return rows

    def count(self, records: int, size: int, low: int) -> None:
        """Add to the numbers, and set the time before which nothing leaves."""
        meta = self._meta
        meta[self._records] = meta.get(self._records, 0) + records
        meta[self._bytes] = meta.get(self._bytes, 0) + size
        meta[self._low] = low

    def due(self, until: int) -> Iterator[tuple[int, bytes]]:
        """Yield buffer times and keys of the changes that leave by that time, in order.

        Each is to be removed before the next step; what comes into the buffer meanwhile is left to the next call.
        """
        if self.low > until:
            return
        changes = self.in_order(until)  # once: to look for the first one anew reads all of them each time
        change = next(changes, None)
        if change is None:
            self.count(0, 0, until + 1)
        while change is not None:
            following = next(changes, None)
            self._following = until + 1 if following is None else following[0]
            yield change
            change = following

    def first(self) -> tuple[int, bytes] | None:
        """Return buffer time and key of the first change."""
        self._following = None
        return next(self.in_order(None), None)

    def in_order(self, until: int | None) -> Iterator[tuple[int, bytes]]:
        """Yield buffer times and keys in the order of leaving, up to and including that time."""
        end = b"u" if until is None or until == _NEVER else _place(until + 1, b"")
        for row, _ in self._map.scan(b"t", end):
            yield int.from_bytes(row[1:9], "big"), row[9:]


def _place(time: int, key: bytes) -> bytes:
    return b"t" + max(time, 0).to_bytes(8, "big") + key
