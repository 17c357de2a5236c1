"""Records to stored rows and back: Arrow IPC without its schema, lz4 on top.

A stored row leaves out what it need not hold: offsets when they have no gaps, keys and headers when all are null.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import LogError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA

__all__ = ["EMPTY", "MAX_ROW_BYTES", "MAX_ROW_RECORDS", "EncodedRow", "concat", "decode", "encode", "normalise"]

MAX_ROW_RECORDS = 10_000
MAX_ROW_BYTES = 4 * 1024 * 1024
_HAS_OFFSETS, _HAS_KEYS, _HAS_HEADERS, _LZ4 = 1, 2, 4, 8
_MIN_COMPRESSED_BYTES = 256
_CODEC = pa.Codec("lz4_raw")
_RECORD_TYPES: dict[str, pa.DataType] = {name: RECORD_SCHEMA.field(name).type for name in RECORD_SCHEMA.names}

EMPTY: pa.RecordBatch = pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """One stored row. ``base`` and ``last`` count from the first record of the append, or are offsets if sparse."""

    base: int
    last: int
    count: int
    min_ts: int
    max_ts: int
    flags: int
    raw_bytes: int
    payload: Any


def _schema_of(flags: int) -> pa.Schema:
    names = ["timestamp", "value"]
    if flags & _HAS_OFFSETS:
        names.append("offset")
    if flags & _HAS_KEYS:
        names.append("key")
    if flags & _HAS_HEADERS:
        names.append("headers")
    return pa.schema([(name, _RECORD_TYPES[name]) for name in names])


_SCHEMAS = {flags: _schema_of(flags) for flags in range(8)}


def normalise(records: pa.RecordBatch, *, append_time_ms: int | None = None) -> pa.RecordBatch:
    """Records as timestamp, key, value, headers (and offset if given), of the right types.

    Args:
        records: What the caller appends; absent columns are null, an absent timestamp is now.
        append_time_ms: Replaces the timestamps (``message.timestamp.type=LogAppendTime``).
    """
    count = records.num_rows
    names = records.schema.names
    if "value" not in names:
        raise LogError(f"records without a value column: {names}", hint=f"columns are {', '.join(RECORD_SCHEMA.names)}")
    columns: dict[str, pa.Array] = {}
    for name, kind in _RECORD_TYPES.items():
        if name in names:
            column = records.column(name)
            columns[name] = column if column.type == kind else column.cast(kind)
        elif name != "offset":
            columns[name] = None if name == "timestamp" else pa.nulls(count, kind)
    if append_time_ms is not None or columns["timestamp"] is None:
        now = append_time_ms if append_time_ms is not None else time.time_ns() // 1_000_000
        columns["timestamp"] = pa.repeat(pa.scalar(now, pa.int64()), count)
    if columns["timestamp"].null_count:
        raise LogError(
            "records without a timestamp", hint="give each record a timestamp in milliseconds since the epoch"
        )
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def encode(records: pa.RecordBatch, *, compression: str = "lz4", sparse: bool = False) -> list[EncodedRow]:
    """Normalised records as rows of at most ``MAX_ROW_RECORDS`` and about ``MAX_ROW_BYTES``."""
    return [_encode_one(piece, start, compression, sparse=sparse) for start, piece in _pieces(records)]


def decode(base_offset: int, count: int, flags: int, raw_bytes: int, payload: bytes) -> pa.RecordBatch:
    """A stored row as RECORD_SCHEMA."""
    buffer = pa.py_buffer(payload)
    if flags & _LZ4:
        buffer = _CODEC.decompress(buffer, raw_bytes)
    stored = pa.ipc.read_record_batch(buffer, _SCHEMAS[flags & 7])
    timestamp, value = stored.column(0), stored.column(1)
    position = 2
    if flags & _HAS_OFFSETS:
        offsets = stored.column(position)
        position += 1
    else:
        offsets = _arange(base_offset, count)
    if flags & _HAS_KEYS:
        key = stored.column(position)
        position += 1
    else:
        key = pa.nulls(count, pa.large_binary())
    headers = stored.column(position) if flags & _HAS_HEADERS else pa.nulls(count, HEADERS_TYPE)
    return pa.RecordBatch.from_arrays([offsets, timestamp, key, value, headers], schema=RECORD_SCHEMA)


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches as one."""
    if not batches:
        return EMPTY
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _arange(base_offset: int, count: int) -> pa.Array:
    return pa.array(np.arange(base_offset, base_offset + count, dtype=np.int64))


def _pieces(records: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    count = records.num_rows
    if not count:
        return
    step = max(1, min(MAX_ROW_RECORDS, count * MAX_ROW_BYTES // max(records.nbytes, 1)))
    for start in range(0, count, step):
        yield start, records.slice(start, step)


def _encode_one(records: pa.RecordBatch, start: int, compression: str, *, sparse: bool) -> EncodedRow:
    flags = 0
    names = ["timestamp", "value"]
    if sparse:
        flags |= _HAS_OFFSETS
        names.append("offset")
    if records.column("key").null_count < records.num_rows:
        flags |= _HAS_KEYS
        names.append("key")
    if records.column("headers").null_count < records.num_rows:
        flags |= _HAS_HEADERS
        names.append("headers")
    times = pc.min_max(records.column("timestamp"))
    columns = [records.column(name) for name in names]
    raw = pa.RecordBatch.from_arrays(columns, schema=_SCHEMAS[flags]).serialize()
    payload = raw
    if compression == "lz4" and raw.size >= _MIN_COMPRESSED_BYTES:
        packed = _CODEC.compress(raw)
        if packed.size < raw.size * 0.95:
            payload, flags = packed, flags | _LZ4
    base, last = start, start + records.num_rows - 1
    if sparse:
        base, last = records.column("offset")[0].as_py(), records.column("offset")[-1].as_py()
    return EncodedRow(
        base=base, last=last, count=records.num_rows, min_ts=times["min"].as_py(), max_ts=times["max"].as_py(),
        flags=flags, raw_bytes=raw.size, payload=payload,
    )  # fmt: skip
