"""Kafka's variable-length integers by column: zigzag, seven bits a byte, the lowest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

__all__ = ["VarintColumn", "read_varints"]

_SEVEN = 0x7F
_MORE = 0x80
_MOST_BYTES = 10  # of 64 bits
_NO_END = 1 << 60  # no buffer is so large, and a few lengths can be added to it


def read_varints(data: Bytes, at: Ints, most_bytes: int = _MOST_BYTES) -> tuple[Ints, Ints]:
    """Decode the integers at these positions, and return the positions after them.

    Positions behind the data are allowed, as are numbers that do not end within ``most_bytes``: their values are
    meaningless, and the position after them is behind the data, so that the caller notices.

    Example:
        >>> values, after = read_varints(np.array([1, 0x80, 0x01], np.uint8), np.array([0, 1]))
        >>> values.tolist(), after.tolist()
        ([-1, 64], [1, 3])
    """
    byte = data.take(at, mode="clip").astype(np.int64)
    value = byte & _SEVEN
    after = at + 1
    longer = np.flatnonzero(byte & _MORE)
    for shift in range(7, 7 * most_bytes, 7):
        if not len(longer):
            break
        byte = data.take(after[longer], mode="clip").astype(np.int64)
        value[longer] |= (byte & _SEVEN) << shift
        after[longer] += 1
        longer = longer[(byte & _MORE) != 0]
    after[longer] = _NO_END
    # An arithmetic shift would keep the sign of a value that uses all 64 bits.
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1), after


class VarintColumn:
    """Integers as varints, each a row of padded bytes.

    Attributes:
        widths: The number of bytes of each.
        cells: The bytes, a row each; those past the width are meaningless.

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
