"""Waiting records of joins: those of two streams without a partner, and those that a table's late changes may meet.

Of two streams (Kafka's shared store of left and outer joins): rows are ``time (8 bytes BE) + side (0: right, 1: left) +
key`` -> the values of that key, side and time, each behind its length (4 bytes BE). So the first rows are those that
leave first, and a match takes out one row.

Of a stream and a table (Kafka's time-ordered key-value buffer): a row's key is ``time (8 bytes BE) + key + sequence
number (4 bytes BE)``; its value holds the record's origin, headers and value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.serde.column import bytes_column, to_bytes_list
from penstock.state.maps import ByteMap
from penstock.state.views.keyvalue import big_endian, frame, unframe
from penstock.state.views.retention import NUMBER
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OuterJoinView", "RecordBufferView", "Waiting", "WaitingRecord"]

_TIME = struct.Struct(">q")
_LENGTH = struct.Struct(">I")
_ALL = 1 << 62


class Waiting(NamedTuple):
    """One waiting record, key and value as bytes; ``row`` is its key in the store."""

    row: bytes
    time: int
    is_left: bool
    key: bytes
    value: bytes


class OuterJoinView:
    """Kafka's ``ListValueStore`` of an outer join."""

    def __init__(self, spec: StoreSpec, entries: ByteMap) -> None:
        self.spec = spec
        self.name = spec.name
        self._map = entries

    @staticmethod
    def parse(rows: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_], pa.Array]:
        """Return times, whether of the left side, and keys of rows."""
        keys, fronts, _ = unframe(rows, before=9)
        times = np.ascontiguousarray(fronts[:, :8]).view(">i8").reshape(-1).astype(np.int64)
        return times, fronts[:, 8] == 1, keys

    @staticmethod
    def rows(times: NDArray[np.int64], is_left: NDArray[np.bool_], keys: pa.Array) -> pa.Array:
        """Return the rows of the records of these times, sides and keys."""
        sides = is_left.astype(np.uint8).reshape(-1, 1)
        return frame(keys, prefix=np.concatenate([big_endian(times), sides], axis=1))

    def apply(self, matched: Sequence[bytes], rows: pa.Array, values: pa.Array, newest_ms: int | None = None) -> None:
        """Take out all records of the rows that were matched, then add records.

        Args:
            matched: Rows; missing ones do not matter.
            rows: For each new record its row.
            values: Its value.
            newest_ms: No record in the store is of a later time, so rows beyond it need not be looked for.
        """
        names: list[bytes] = to_bytes_list(rows)  # type: ignore[assignment]
        may_be_there = names
        if newest_ms is not None:
            end = _TIME.pack(newest_ms + 1)
            matched = [row for row in matched if row < end]
            may_be_there = [row for row in names if row < end]
        self.take_out(matched)
        if not names:
            return
        there = self._map.get_many(may_be_there)
        lengths = pc.binary_length(values).to_numpy().astype(">u4").view(np.uint8).reshape(-1, 4)
        lists: list[bytes] = to_bytes_list(frame(values, prefix=lengths))  # type: ignore[assignment]
        if there.count(None) < len(there) or len(set(names)) < len(names):
            joined = dict.fromkeys(names, b"")
            joined |= {row: old for row, old in zip(may_be_there, there, strict=True) if old is not None}
            for row, value in zip(names, lists, strict=True):
                joined[row] += value
            names, lists = list(joined), list(joined.values())
        self._map.put_many(names, lists)

    def take_out(self, matched: Sequence[bytes]) -> None:
        """Take out all records of rows; missing ones do not matter."""
        old_values = self._map.get_many(matched)
        gone = [row for row, old in zip(matched, old_values, strict=True) if old is not None]
        if gone:
            self._map.put_many(gone, [None] * len(gone))

    @staticmethod
    def row(time: int, key: bytes, *, is_left: bool) -> bytes:
        """Return the row of the records of a time, a side and a key."""
        return _TIME.pack(time) + (b"\x01" if is_left else b"\x00") + key

    def add(self, row: bytes, value: bytes) -> None:
        """Add one record, as `apply` does."""
        self._map.put(row, (self._map.get(row) or b"") + _LENGTH.pack(len(value)) + value)

    def older_than(self, time: int) -> tuple[list[bytes], pa.Array]:
        """Return the rows and values of all records before a time, in the order of `waiting`."""
        entries = self._map.read(b"\x00", _TIME.pack(max(time, 0)), _ALL)
        if entries is None or not entries[0]:
            return [], bytes_column([])
        rows, lists = entries
        values, prefixes, _ = unframe(bytes_column(lists), before=4)
        several = np.flatnonzero(prefixes.view(">u4").reshape(-1) != pc.binary_length(values).to_numpy())
        if not len(several):
            return rows, values
        parts = [_split(lists[i]) for i in several.tolist()]
        counts = np.ones(len(rows), np.int64)
        counts[several] = [len(part) for part in parts]
        index = np.repeat(np.arange(len(rows)), counts)
        names = [rows[i] for i in index.tolist()]
        split = np.isin(index, several)
        index[split] = len(rows) + np.arange(int(split.sum()))
        together = pa.concat_arrays([values, bytes_column([value for part in parts for value in part])])
        return names, together.take(pa.array(index))

    def waiting(self, from_time: int | None = None, to_time: int | None = None) -> Iterator[Waiting]:
        """Yield the records with from_time <= time < to_time, by time, right ones first, then by key; None is open."""
        start = None if from_time is None else _TIME.pack(max(from_time, 0))
        end = None if to_time is None else _TIME.pack(max(to_time, 0))
        for row, values in self._map.scan(start, end):
            time, is_left, key = _TIME.unpack_from(row)[0], row[8] == 1, row[9:]
            for value in _split(values):
                yield Waiting(row, time, is_left, key, value)

    def last_time(self) -> int | None:
        """Return the largest time of a waiting record."""
        row = next((row for row, _ in self._map.scan(reverse=True)), None)
        return None if row is None else int(_TIME.unpack_from(row)[0])

    def packed(self, rows: Sequence[bytes]) -> list[bytes | None]:
        """Return the lists of values of rows as they are stored; None for those that are not there."""
        return self._map.get_many(rows)

    def restore(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Store lists of values that `packed` has returned."""
        self._map.put_many(list(rows), list(rows.values()))

    def delete(self, rows: Sequence[bytes]) -> None:
        """Take out rows that exist."""
        self._map.put_many(rows, [None] * len(rows))

    def all(self) -> Iterator[Waiting]:
        """Return all waiting records, in the order of `waiting`."""
        return self.waiting()


def _split(values: bytes) -> list[bytes]:
    """Return the values of one row."""
    row_values = []
    at = 0
    while at < len(values):
        first = at + 4
        at = first + _LENGTH.unpack_from(values, at)[0]
        row_values.append(values[first:at])
    return row_values


_COUNT = struct.Struct(">I")
_SIGNED_LENGTH = struct.Struct(">i")
_SOURCE = struct.Struct(">iqi")  # partition, offset, length of the topic's name
_MASK = 0x7FFFFFFF


class WaitingRecord(NamedTuple):
    """A record as bytes, and its origin."""

    time: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    partition: int
    offset: int


class RecordBufferView:
    """Kafka's ``TimeOrderedKeyValueBuffer`` of whole records, ordered by time, key and arrival."""

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        self.spec = spec
        self.name = spec.name
        self._map = entries
        self._meta = meta
        self._time_name = f"{spec.name}/observed-stream-time"
        self._sequence_name = f"{spec.name}/sequence-number"

    @property
    def observed_stream_time(self) -> int:
        """The largest time of a record that was put in, -1 before the first."""
        return self._meta.get(self._time_name, -1)

    def observe(self, time: int) -> None:
        """Move the stream time on."""
        if time > self.observed_stream_time:
            self._meta[self._time_name] = time

    def add(self, records: Iterable[WaitingRecord]) -> None:
        """Add waiting records."""
        number = self._meta.get(self._sequence_name, 0)
        rows: list[bytes] = []
        values: list[bytes] = []
        for record in records:
            number = (number + 1) & _MASK
            rows.append(NUMBER.pack(record.time) + record.key + _COUNT.pack(number))
            values.append(_dump(record))
        self._meta[self._sequence_name] = number
        self._map.put_many(rows, values)

    def take_until(self, time: int) -> list[WaitingRecord]:
        """Take out the records whose time is at most this, in order."""
        if time < 0:
            return []
        rows = list(self._map.scan(None, NUMBER.pack(time + 1)))
        self._map.put_many([row for row, _ in rows], [None] * len(rows))
        return [_load(row, value) for row, value in rows]

    def until(self, time: int) -> list[tuple[bytes, WaitingRecord]]:
        """Return the records whose time is at most this, in order, each with the name of its row."""
        if time < 0:
            return []
        return [(row, _load(row, value)) for row, value in self._map.scan(None, NUMBER.pack(time + 1))]

    def remove(self, row: bytes) -> None:
        """Take out one record."""
        self._map.put_many([row], [None])

    def all(self) -> Iterator[WaitingRecord]:
        """Return the waiting records in order."""
        return (_load(row, value) for row, value in self._map.scan())


def _dump(record: WaitingRecord) -> bytes:
    topic = record.topic.encode()
    parts = [_SOURCE.pack(record.partition, record.offset, len(topic)), topic, _COUNT.pack(len(record.headers))]
    for name, value in record.headers:
        encoded = name.encode()
        parts += [
            _SIGNED_LENGTH.pack(len(encoded)),
            encoded,
            _SIGNED_LENGTH.pack(-1 if value is None else len(value)),
            value or b"",
        ]
    return b"".join([*parts, record.value])


def _load(row: bytes, data: bytes) -> WaitingRecord:
    partition, offset, length = _SOURCE.unpack_from(data)
    topic = data[_SOURCE.size : _SOURCE.size + length].decode()
    count = _SOURCE.size + length
    at = count + _COUNT.size

    def text() -> bytes | None:
        nonlocal at
        length = _SIGNED_LENGTH.unpack_from(data, at)[0]
        start = at + _SIGNED_LENGTH.size
        at = start + max(length, 0)
        return None if length < 0 else data[start:at]

    headers = tuple([((text() or b"").decode(), text()) for _ in range(_COUNT.unpack_from(data, count)[0])])
    return WaitingRecord(NUMBER.unpack_from(row)[0], row[8:-4], data[at:], headers, topic, partition, offset)
