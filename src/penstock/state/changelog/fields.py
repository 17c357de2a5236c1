"""Readers and writers of consecutive fields in each element of a binary column, without a loop per element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.serde.buffers import bytes_column, from_fixed_width, large_binary, parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Fields", "number_column", "lengths_of"]


def number_column(numbers: NDArray[np.int64], width: int) -> pa.Array:
    """Return numbers as big-endian bytes of this width, 4 or 8."""
    return from_fixed_width(np.ascontiguousarray(numbers, f">i{width}").view(np.uint8).reshape(-1, width))


def lengths_of(column: pa.Array) -> NDArray[np.int64]:
    """Return the length in bytes of each element, -1 for null."""
    _, offsets = parts(column)
    lengths: NDArray[np.int64] = np.diff(offsets)
    return np.where(np.asarray(column.is_valid()), lengths, -1)


class Fields:
    """Takes field after field from the front of every element; raises ValueError where an element is too short.

    Args:
        column: The elements, none of them null.
    """

    def __init__(self, column: pa.Array) -> None:
        self._column = large_binary(column)
        self._body, offsets = parts(self._column)
        self._at = offsets[:-1].copy()
        self._ends = offsets[1:]

    @property
    def left(self) -> NDArray[np.int64]:
        """The number of bytes of each element that have not been taken."""
        return self._ends - self._at

    def _check(self, ends: NDArray[np.int64]) -> None:
        if (ends > self._ends).any():
            raise ValueError("a field that is cut short")

    def number(self, width: int) -> NDArray[np.int64]:
        """Take a big-endian number of 4 or 8 bytes."""
        self._check(self._at + width)
        taken = np.ascontiguousarray(self._body[self._at[:, None] + np.arange(width)])
        self._at = self._at + width
        found: NDArray[np.int64] = taken.view(f">i{width}").reshape(-1).astype(np.int64)
        return found

    def bytes(self, lengths: NDArray[np.int64]) -> pa.Array:
        """Take so many bytes; null where the length is negative."""
        there = np.maximum(lengths, 0)
        self._check(self._at + there)
        ends = np.zeros(len(there) + 1, np.int64)
        np.cumsum(there, out=ends[1:])
        data = self._body[np.arange(ends[-1]) + np.repeat(self._at - ends[:-1], there)] if ends[-1] else self._body[:0]
        self._at = self._at + there
        null = lengths < 0
        bitmap = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
        buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(data))]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(there), buffers)

    def sized(self) -> pa.Array:
        """Take bytes behind their length; null where that is negative."""
        return self.bytes(self.number(4))

    def headers(self, counts: NDArray[np.int64]) -> pa.Array:
        """Take so many headers, each a name and a value behind their lengths, as written; null where there are none."""
        if not (counts > 0).any():
            return bytes_column([None] * len(counts))
        lengths = np.full(len(counts), -1, np.int64)
        for row in np.flatnonzero(counts > 0).tolist():
            at = start = int(self._at[row])
            for _ in range(2 * int(counts[row])):
                if at + 4 > int(self._ends[row]):
                    raise ValueError("headers that are cut short")
                at += 4 + max(int.from_bytes(self._body[at : at + 4].tobytes(), "big", signed=True), 0)
            lengths[row] = at - start
        return self.bytes(lengths)
