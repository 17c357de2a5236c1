"""Many rows of a window store at once, as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.serde.column import bytes_column
from penstock.state.maps import ByteMap, Entries
from penstock.state.views.keyvalue import unframe
from penstock.state.views.retention import NUMBER

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.serde.column import Column

__all__ = ["WindowRows", "read_buckets"]

_FEW_SEEKS = 64  # up to so many ranges are read one by one without a thought
_ROWS_PER_SEEK = 8  # reading on costs as much for so many rows as finding another range


@dataclass(frozen=True)
class WindowRows:
    """Rows of a window store, in the order of key, start and arrival within each bucket."""

    keys: pa.Array
    starts: NDArray[np.int64]
    values: list[bytes]
    decoder: Callable[[list[bytes]], Column]

    def __len__(self) -> int:
        return len(self.starts)

    def decode(self, index: NDArray[np.int64]) -> Column:
        """Return the values of the rows at these positions."""
        return self.decoder([self.values[i] for i in index.tolist()])


def read_buckets(
    entries: ByteMap, buckets: Sequence[int], bucket_ms: int, keys: Sequence[bytes], sequence_bytes: int
) -> tuple[pa.Array, NDArray[np.int64], list[bytes]]:
    """Return all rows of these keys in these buckets, perhaps with rows of other keys: (keys, starts, values).

    Reads the buckets from end to end, unless they hold many more rows than there are keys to look for.
    """
    seeks = len(keys) * len(buckets)
    rows_and_values = None
    if seeks > _FEW_SEEKS:
        front, end = NUMBER.pack(buckets[0]), NUMBER.pack(buckets[-1] + bucket_ms)
        rows_and_values = entries.read(front, end, seeks * _ROWS_PER_SEEK)
    if rows_and_values is None:
        rows_and_values = _sought(entries, buckets, keys, 8 + sequence_bytes)
    rows, values = rows_and_values
    if not rows:
        return bytes_column([]), np.empty(0, np.int64), []
    names, _, tails = unframe(bytes_column(rows), before=8, after=8 + sequence_bytes)
    starts = np.ascontiguousarray(tails[:, :8]).view(">i8").reshape(-1).astype(np.int64)
    return names, starts, values


def _sought(entries: ByteMap, buckets: Sequence[int], keys: Sequence[bytes], tail: int) -> Entries:
    """Return the rows of each key in each bucket, one range after the other."""
    fronts = [NUMBER.pack(bucket) + key for bucket in buckets for key in keys]
    # A start is not negative, so its first byte is below 0x80. Longer keys may begin as this one does.
    rows_of_fronts = entries.scan_many((front, front + b"\x80") for front in fronts)
    rows = [
        row
        for front, some in zip(fronts, rows_of_fronts, strict=True)
        for row in some
        if len(row[0]) == len(front) + tail
    ]
    return [key for key, _ in rows], [value for _, value in rows]
