"""Fixed-width bytes around the elements of a binary column, added and removed without a loop per row."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.serde.base import FEW, decode_rows, encode_rows
from penstock.serde.column import bytes_column, to_bytes_list

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.serde.base import Serde
    from penstock.serde.column import Column

__all__ = [
    "arrow_bytes",
    "big_endian",
    "decode_stamped",
    "encode_stamped",
    "first_byte",
    "frame",
    "stamps_of",
    "unframe",
]

_STAMP = struct.Struct(">q")
_FEW = 24  # rows; for more, the work by column that has to be begun pays


def big_endian(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return one row of 8 bytes for each number, most significant byte first."""
    return np.ascontiguousarray(numbers, dtype=">i8").view(np.uint8).reshape(-1, 8)


def first_byte(column: pa.Array) -> NDArray[np.uint8]:
    """Return the first byte of each element, 0 for nulls; no element is empty."""
    offsets, data = _parts(column)
    lengths = np.diff(offsets)
    found = np.zeros(len(column), np.uint8)
    found[lengths > 0] = data[offsets[:-1][lengths > 0]]
    return found


def _parts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return offsets (starting at 0) and bytes of a large_binary array; nulls are made empty."""
    if column.type != pa.large_binary():
        column = column.cast(pa.large_binary())
    _, offset_buffer, data_buffer = column.buffers()
    first, length = column.offset, len(column)
    if length == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int64, length + 1, first * 8)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    data = data[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    if column.null_count:
        lengths = np.diff(offsets)
        null = column.is_null().to_numpy(zero_copy_only=False)
        if lengths[null].any():  # a null may stand over bytes that mean nothing
            data = data[np.repeat(~null, lengths)]
            lengths = np.where(null, 0, lengths)
            offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return offsets, data


def _build(offsets: NDArray[np.int64], data: NDArray[np.uint8], null: NDArray[np.bool_] | None) -> pa.Array:
    validity = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def frame(
    column: pa.Array, prefix: NDArray[np.uint8] | None = None, suffix: NDArray[np.uint8] | None = None
) -> pa.Array:
    """Return each element with its row of ``prefix`` before and of ``suffix`` behind it; nulls stay null."""
    length = len(column)
    if length <= _FEW:
        return _frame_few(column, prefix, suffix)
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    offsets, data = _parts(column)
    before = 0 if prefix is None else prefix.shape[1]
    after = 0 if suffix is None else suffix.shape[1]
    extra = np.full(length, before + after, np.int64)
    if null is not None:
        extra[null] = 0
    lengths = np.diff(offsets) + extra
    if length and null is None and (lengths == lengths[0]).all():
        parts = [p for p in (prefix, data.reshape(length, -1), suffix) if p is not None and p.shape[1]]
        whole = np.concatenate(parts, axis=1) if parts else np.zeros((length, 0), np.uint8)
        return _build(np.arange(length + 1, dtype=np.int64) * whole.shape[1], whole.reshape(-1), None)
    framed = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    out = np.empty(int(framed[-1]), np.uint8)
    own = np.ones(len(out), np.bool_)
    rows = slice(None) if null is None else ~null
    for part, at in ((prefix, framed[:-1]), (suffix, framed[1:] - after)):
        if part is not None:
            places = at[rows, None] + np.arange(part.shape[1])
            out[places] = part[rows]
            own[places] = False
    out[own] = data
    return _build(framed, out, null)


def unframe(column: pa.Array, before: int = 0, after: int = 0) -> tuple[pa.Array, NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the elements without their first ``before`` and last ``after`` bytes, and those bytes (0xff for nulls).

    Raises:
        ValueError: An element has fewer bytes.
    """
    length = len(column)
    if length <= _FEW:
        return _unframe_few(column, before, after)
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    offsets, data = _parts(column)
    lengths = np.diff(offsets)
    if length and (lengths if null is None else lengths[~null]).min(initial=before + after) < before + after:
        raise ValueError(f"an element has fewer than {before + after} bytes")
    if length and null is None and (lengths == lengths[0]).all():
        whole = data.reshape(length, -1)
        width = whole.shape[1] - before - after
        core = _build(
            np.arange(length + 1, dtype=np.int64) * width, whole[:, before : before + width].reshape(-1), None
        )
        return core, np.ascontiguousarray(whole[:, :before]), np.ascontiguousarray(whole[:, before + width :])
    own = np.ones(len(data), np.bool_)
    rows = slice(None) if null is None else ~null
    cut = []
    for width, at in ((before, offsets[:-1]), (after, offsets[1:] - after)):
        taken = np.full((length, width), 0xFF, np.uint8)
        places = at[rows, None] + np.arange(width)
        taken[rows] = data[places]
        own[places] = False
        cut.append(taken)
    extra = np.full(length, before + after, np.int64)
    if null is not None:
        extra[null] = 0
    core_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths - extra)])
    return _build(core_offsets, data[own], null), cut[0], cut[1]


def arrow_bytes(rows: Sequence[bytes | None]) -> int:
    """Return the size of these rows as a column."""
    data = b"".join(row for row in rows if row is not None)
    validity = (len(rows) + 7) // 8 if None in rows else 0
    return len(data) + 8 * (len(rows) + 1) + validity


def encode_stamped(serde: Serde[Any], values: Column, stamps: NDArray[np.int64]) -> list[bytes | None]:
    """Return the bytes of values with their timestamps in front; null values stay null."""
    if len(values) > FEW:
        return to_bytes_list(frame(serde.encode(values), prefix=big_endian(stamps)))
    pairs = zip(encode_rows(serde, values), stamps.tolist(), strict=True)
    return [None if row is None else _STAMP.pack(stamp) + row for row, stamp in pairs]


def decode_stamped(serde: Serde[Any], rows: Sequence[bytes | None]) -> tuple[Column, NDArray[np.int64]]:
    """Return the values of rows with timestamps in front, and these; null and -1 for nulls."""
    if len(rows) > FEW:
        plain, stamps, _ = unframe(bytes_column(rows), before=8)
        return serde.decode(plain), stamps.view(">i8").reshape(-1).astype(np.int64)
    return decode_rows(serde, [None if row is None else row[8:] for row in rows]), stamps_of(rows)


def stamps_of(rows: Sequence[bytes | None]) -> NDArray[np.int64]:
    """Return the timestamps in front of rows, -1 for nulls."""
    return np.array([-1 if row is None else _STAMP.unpack_from(row)[0] for row in rows], np.int64)


def _frame_few(column: pa.Array, prefix: NDArray[np.uint8] | None, suffix: NDArray[np.uint8] | None) -> pa.Array:
    none = [b""] * len(column)
    before = none if prefix is None else [row.tobytes() for row in prefix]
    after = none if suffix is None else [row.tobytes() for row in suffix]
    rows = zip(before, column.to_pylist(), after, strict=True)
    return bytes_column([None if own is None else first + own + last for first, own, last in rows])


def _unframe_few(column: pa.Array, before: int, after: int) -> tuple[pa.Array, NDArray[np.uint8], NDArray[np.uint8]]:
    rows = column.to_pylist()
    if any(row is not None and len(row) < before + after for row in rows):
        raise ValueError(f"an element has fewer than {before + after} bytes")
    core = [None if row is None else row[before : len(row) - after] for row in rows]
    first, last = b"\xff" * before, b"\xff" * after
    heads = b"".join(first if row is None else row[:before] for row in rows) if before else b""
    tails = b"".join(last if row is None else row[len(row) - after :] for row in rows) if after else b""
    return bytes_column(core), _matrix(heads, len(rows), before), _matrix(tails, len(rows), after)


def _matrix(data: bytes, length: int, width: int) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(data), np.uint8).reshape(length, width)
