"""Kafka's variable-length integers by column: zigzag, seven bits a byte, the lowest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

__all__ = ["VarintColumn", "read_unsigned", "read_varints"]

_SEVEN = 0x7F
_MORE = 0x80


def read_unsigned(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """One integer without its sign undone, and the place after it.

    Example:
        >>> read_unsigned(bytes([0x80, 0x01]), 0)
        (128, 2)
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & _SEVEN) << shift
        if byte < _MORE:
            return value, at
        shift += 7


def read_varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The integers that begin at these places, and the places after them.

    Example:
        >>> values, after = read_varints(np.array([1, 0x80, 0x01], np.uint8), np.array([0, 1]))
        >>> values.tolist(), after.tolist()
        ([-1, 64], [1, 3])
    """
    byte = data[at].astype(np.int64)
    value = byte & _SEVEN
    after = at + 1
    longer = np.flatnonzero(byte & _MORE)
    shift = 7
    while len(longer):
        byte = data[after[longer]].astype(np.int64)
        value[longer] |= (byte & _SEVEN) << shift
        after[longer] += 1
        longer = longer[(byte & _MORE) != 0]
        shift += 7
    # An arithmetic shift would keep the sign of a value that uses all 64 bits.
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1), after


class VarintColumn:
    """Integers as varints: a row of padded bytes each, and how many of them count.

    Attributes:
        widths: Bytes of each.
        cells: A row each; bytes past the width mean nothing.

    Example:
        >>> VarintColumn(np.array([0, -1, 64])).widths.tolist()
        [1, 1, 2]
    """

    def __init__(self, values: Ints) -> None:
        rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
        cells: list[Bytes] = []
        widths = np.ones(len(values), np.int64)
        while True:
            byte = (rest & np.uint64(_SEVEN)).astype(np.uint8)
            rest = rest >> np.uint64(7)
            more = rest != 0
            if not more.any():
                cells.append(byte)
                break
            cells.append(np.where(more, byte | np.uint8(_MORE), byte))
            widths += more
        self.widths = widths
        self.cells = np.stack(cells, axis=1)
