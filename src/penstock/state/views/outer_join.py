"""The waiting records of two joined streams: Kafka's shared store of left and outer joins.

Rows are ``time (8 bytes BE) + side (0: right, 1: left) + key`` -> the values of that key, side and time, each behind
its length (4 bytes BE). So the first rows are those that leave first, and a match takes out one row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.serde.column import bytes_column, to_bytes_list
from penstock.state.maps import ByteMap
from penstock.state.views.keyvalue import big_endian, frame, unframe
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OuterJoinView", "Waiting"]

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
        old_values = self._map.get_many(matched)
        gone = [row for row, old in zip(matched, old_values, strict=True) if old is not None]
        if gone:
            self._map.put_many(gone, [None] * len(gone))
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
