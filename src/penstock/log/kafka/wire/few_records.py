"""Records of small batches, encoded and decoded one by one in plain Python.

Work by column (`record_batches`, `record_columns`) costs little for each record, but half a millisecond for each batch;
the batches of a stream thread that commits every few milliseconds have a handful of records. The bytes and the columns
are the same. Anything unusual is left to the column code: it knows the errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.base.varints import INT_BYTES, read_signed, signed
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA
from penstock.log.stored_batches import record_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.log.kafka.wire.record_columns import FoundRecords

__all__ = ["FEW", "decode_few", "encode_few"]

FEW = 64
"""The most records for which this is used; with twice as many, decoding by column is faster."""

_MOST_BYTES = 1 << 18  # columns do not copy values one by one
_BYTES = (pa.large_binary(), pa.binary())
_INT64 = pa.int64()
_LARGE = pa.large_binary()
_MORE = 0x80
_LATEST_MS = 1 << 61
_NULL = b"\1"  # the length -1
_VARINTS = tuple(
    bytes([2 * value]) if 2 * value < _MORE else bytes([2 * value & 0x7F | _MORE, 2 * value >> 7])
    for value in range(1 << 13)
)


def encode_few(records: pa.RecordBatch, most_bytes: int, overhead: int) -> tuple[bytes, int, int] | None:
    """Encode records as the body of one batch; None if that is for the column encoder to do.

    Args:
        records: At least one record, as for `encode_batches`.
        most_bytes: The size limit of the body, by the estimate of the column encoder.
        overhead: The bytes that the estimate counts for a record beside key, value and headers.

    Returns:
        The body, and the first and the largest timestamp.
    """
    names = records.schema.names
    key_column, value_column = records.column("key"), records.column("value")
    if record_bytes(records) > _MOST_BYTES or key_column.type not in _BYTES or value_column.type not in _BYTES:
        return None
    if "headers" in names and (headers := records.column("headers")).null_count != len(headers):
        return None
    stamps = records.column("timestamp").to_pylist()
    first, last = stamps[0], max(stamps)
    if min(stamps) < 0 or last > _LATEST_MS:
        return None
    pieces: list[bytes] = []
    estimate = 0
    for number, (stamp, key, value) in enumerate(
        zip(stamps, key_column.to_pylist(), value_column.to_pylist(), strict=True)
    ):
        front = [b"\0", _varint(stamp - first), _VARINTS[number]]
        front += (_NULL,) if key is None else (_varint(len(key)), key)
        front += (_NULL,) if value is None else (_varint(len(value)), value)
        front.append(b"\0")
        record = b"".join(front)
        estimate += overhead + 1 + (len(key) if key else 0) + (len(value) if value else 0)
        pieces += (_varint(len(record)), record)
    if estimate > most_bytes:
        return None
    return b"".join(pieces), first, last


def _varint(value: int) -> bytes:
    return _VARINTS[value] if 0 <= value < len(_VARINTS) else signed(value)


def decode_few(data: bytes, layout: FoundRecords) -> pa.RecordBatch | None:
    """Decode records as RECORD_SCHEMA; None if that is for the column decoder to do: headers, damaged records.

    Args:
        data: The bytes in which the records are.
        layout: Their positions.
    """
    offsets: list[int] = []
    stamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    try:
        for base, last, stamp, is_fixed, begin, stop, count in _batches(layout):
            at, before = begin, -1
            for _ in range(count):
                length, at = _int(data, at)
                end = at + length
                elapsed, at = _signed(data, at + 1)
                delta, at = _int(data, at)
                key, at = _piece(data, at, end)
                value, at = _piece(data, at, end)
                if data[at] or at + 1 != end or end > stop or not before < delta <= last:
                    return None
                at, before = end, delta
                offsets.append(base + delta)
                stamps.append(stamp if is_fixed else stamp + elapsed)
                keys.append(key)
                values.append(value)
            if at != stop:
                return None
        columns = [
            pa.array(offsets, _INT64),
            pa.array(stamps, _INT64),
            pa.array(keys, _LARGE),
            pa.array(values, _LARGE),
            pa.nulls(len(offsets), HEADERS_TYPE),
        ]
    except (LookupError, ArithmeticError, ValueError, pa.ArrowException):
        return None
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _batches(layout: FoundRecords) -> Iterator[tuple[int, int, int, bool, int, int, int]]:
    return zip(
        layout.bases,
        layout.lasts,
        layout.stamps,
        layout.fixed,
        layout.begins,
        layout.stops,
        layout.counts,
        strict=True,
    )


def _piece(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _int(data, at)
    if length < 0:
        return None, at
    after = at + length
    if after >= end:
        raise ValueError(after)
    return data[at:after], after


def _int(data: bytes, at: int) -> tuple[int, int]:
    low = data[at]
    if low < _MORE:
        return (low >> 1) ^ -(low & 1), at + 1
    return read_signed(data, at, INT_BYTES)


def _signed(data: bytes, at: int) -> tuple[int, int]:
    low = data[at]
    if low < _MORE:
        return (low >> 1) ^ -(low & 1), at + 1
    return read_signed(data, at)
