"""Where unmatched records of two joined streams wait: Kafka's shared store of left and outer joins.

Rows are ``time (8 bytes BE) + side (0: right, 1: left) + key`` -> the values of that key, side and time, each behind
its length (4 bytes BE). So the first rows are those that leave first, and what a match takes out is one row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.state.base import ByteMap
from penstock.state.views.frames import big_endian, frame
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["OuterJoinView", "Waiting"]

_TIME = struct.Struct(">q")
_LENGTH = struct.Struct(">I")


class Waiting(NamedTuple):
    """One waiting record, key and value as bytes; ``row`` is where it is kept."""

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
    def rows(times: NDArray[np.int64], is_left: NDArray[np.bool_], keys: pa.Array) -> pa.Array:
        """Where the records of these times, sides and keys are kept."""
        sides = is_left.astype(np.uint8).reshape(-1, 1)
        return frame(keys, prefix=np.concatenate([big_endian(times), sides], axis=1))

    def apply(self, matched: Sequence[bytes], rows: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Takes out all records of the rows that were matched, then adds records.

        Args:
            matched: Rows; those that are not there do not matter.
            rows: For each new record its row.
            values: Its value.
        """
        found = self._map.get_many(matched)
        changes: dict[bytes, bytes | None] = {
            row: None for row, old in zip(matched, found, strict=True) if old is not None
        }
        for row, old, value in zip(rows, self._map.get_many(rows), values, strict=True):
            before = changes.get(row, old)
            changes[row] = (before or b"") + _LENGTH.pack(len(value)) + value
        self._map.put_many(list(changes), list(changes.values()))

    def waiting(self, from_time: int | None = None, to_time: int | None = None) -> Iterator[Waiting]:
        """The records with from_time <= time < to_time, by time, right ones first, then by key; None is open."""
        start = None if from_time is None else _TIME.pack(max(from_time, 0))
        end = None if to_time is None else _TIME.pack(max(to_time, 0))
        for row, values in self._map.scan(start, end):
            time, is_left, key = _TIME.unpack_from(row)[0], row[8] == 1, row[9:]
            at = 0
            while at < len(values):
                first = at + 4
                at = first + _LENGTH.unpack_from(values, at)[0]
                yield Waiting(row, time, is_left, key, values[first:at])

    def last_time(self) -> int | None:
        """The largest time of a waiting record."""
        row = next((row for row, _ in self._map.scan(reverse=True)), None)
        return None if row is None else int(_TIME.unpack_from(row)[0])

    def delete(self, rows: Sequence[bytes]) -> None:
        """Takes rows out that are there."""
        self._map.put_many(rows, [None] * len(rows))

    def all(self) -> Iterator[Waiting]:
        """All waiting records, in the order of `waiting`."""
        return self.waiting()
