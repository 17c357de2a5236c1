"""Arrow arrays of bytes and numpy arrays over the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from numpy.typing import NDArray

__all__ = [
    "LARGE_BINARY",
    "bytes_column",
    "cut",
    "fixed_width",
    "from_ends",
    "from_fixed_width",
    "join",
    "large_binary",
    "nulls_of",
    "parts",
    "series_of",
    "to_bytes_list",
    "without_suffix",
]

LARGE_BINARY = pa.large_binary()
_BINARY = (LARGE_BINARY, pa.binary())
_FEW = 1_000
_FEW_BYTES = 24


def large_binary(data: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the same bytes as one ``large_binary`` array, from any binary or string type."""
    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks() if data.num_chunks != 1 else data.chunk(0)
    if data.type == LARGE_BINARY:
        return data
    if pa.types.is_null(data.type):
        return pa.nulls(len(data), LARGE_BINARY)
    return data.cast(LARGE_BINARY)


def bytes_column(rows: Sequence[bytes | None]) -> pa.Array:
    """Return a ``large_binary`` array of these rows."""
    return pa.array(rows, LARGE_BINARY)


def to_bytes_list(column: pa.Array) -> list[bytes | None]:
    """Return the elements as Python bytes; from some tens on several times faster than ``to_pylist``."""
    if len(column) <= _FEW_BYTES and column.type in _BINARY:
        return column.to_pylist()  # type: ignore[no-any-return]
    import polars as pl

    return pl.Series("", column, dtype=pl.Binary).to_list()


def from_ends(body: object, ends: list[int], items: list[object]) -> pa.Array:
    """Return rows that stand one after the other in ``body``; ``ends`` begins with 0, and rows of no item are null."""
    offsets = np.array(ends, np.int64)
    valid = None
    if None in items:
        mask = np.fromiter((item is not None for item in items), np.bool_, len(items))
        valid = pa.py_buffer(np.packbits(mask, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(body)]
    return pa.LargeBinaryArray.from_buffers(LARGE_BINARY, len(items), buffers)


def parts(data: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all bytes of the buffer, and the n + 1 offsets of the rows in it; bytes under a null row are undefined."""
    data = large_binary(data)
    if not len(data):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, body = data.buffers()
    starts = np.frombuffer(offsets, np.int64, len(data) + 1, data.offset * 8)
    return (np.frombuffer(body, np.uint8) if body is not None and body.size else np.empty(0, np.uint8)), starts


def fixed_width(data: pa.Array, width: int) -> tuple[NDArray[np.uint8] | None, NDArray[np.bool_] | None, int]:
    """Return rows of one width as a matrix of the rows that are not null.

    Returns:
        The matrix (None if some row has another width), the mask of present rows (None: all), and the first row
        of another width (-1: none).
    """
    data = large_binary(data)
    present = data.drop_null() if data.null_count else data
    valid = np.asarray(data.is_valid()) if data.null_count else None
    body, offsets = parts(present)
    wrong = np.flatnonzero(np.diff(offsets) != width)
    if len(wrong):
        row = int(wrong[0])
        return None, valid, row if valid is None else int(np.flatnonzero(valid)[row])
    return body[offsets[0] : offsets[-1]].reshape(-1, width), valid, -1


def from_fixed_width(matrix: NDArray[np.uint8], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return rows of one width as ``large_binary``; ``matrix`` has the present rows only, ``valid`` is their mask."""
    count, width = matrix.shape
    body = pa.py_buffer(np.ascontiguousarray(matrix))
    if valid is None:
        offsets = np.arange(count + 1, dtype=np.int64) * width
        return pa.LargeBinaryArray.from_buffers(LARGE_BINARY, count, [None, pa.py_buffer(offsets), body])
    offsets = np.zeros(len(valid) + 1, np.int64)
    np.cumsum(valid * width, out=offsets[1:])
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.LargeBinaryArray.from_buffers(LARGE_BINARY, len(valid), [bitmap, pa.py_buffer(offsets), body])


def without_suffix(data: pa.Array, suffix: int) -> pa.Array:
    """Return the rows without their last ``suffix`` bytes; every row that is not null must have as many."""
    return cut(data, 0, suffix)


def cut(data: pa.Array, before: NDArray[np.int64] | int, after: NDArray[np.int64] | int) -> pa.Array:
    """Return the rows without their first ``before`` and last ``after`` bytes; null rows stay null."""
    data = large_binary(data)
    if not len(data):
        return data
    body, offsets = parts(data)
    valid = np.asarray(data.is_valid())
    lengths = np.where(valid, np.diff(offsets) - before - after, 0)
    ends = np.zeros(len(data) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    kept = body[np.arange(ends[-1]) + np.repeat(offsets[:-1] + before - ends[:-1], lengths)] if ends[-1] else body[:0]
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(kept))]
    return pa.LargeBinaryArray.from_buffers(LARGE_BINARY, len(data), buffers)


def join(*pieces: pa.Array | bytes) -> pa.Array:
    """Join the pieces row by row, one after the other; null where any piece is."""
    empty = pa.scalar(b"", LARGE_BINARY)
    columns = [pa.scalar(piece, LARGE_BINARY) if isinstance(piece, bytes) else large_binary(piece) for piece in pieces]
    return pc.binary_join_element_wise(*columns, empty)


def series_of(data: pa.Array) -> pl.Series:
    """Return an Arrow array as a Polars series."""
    import polars as pl

    series = pl.from_arrow(data)
    assert isinstance(series, pl.Series)  # noqa: S101 - for the type checker: an array never becomes a frame
    return series


def nulls_of(series: pl.Series) -> NDArray[np.bool_]:
    """Return the mask of a series' nulls; for a few rows without a query, which takes Polars longer than all else."""
    if not series.null_count():
        return np.zeros(len(series), np.bool_)
    if len(series) > _FEW and not series.dtype.is_numeric():  # texts are copied on their way to Arrow
        return series.is_null().to_numpy()
    try:
        return np.asarray(series.to_arrow().is_null())
    except pa.ArrowInvalid:  # integers of 128 bits, which Arrow lacks
        return series.is_null().to_numpy()
