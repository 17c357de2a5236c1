"""The encoding of records in stored rows: Arrow IPC without its schema, compressed with lz4.

A stored row omits columns that can be restored: offsets without gaps, keys and headers that are all null.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from penstock.base.clock import unix_ms
from penstock.errors import LogError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA

__all__ = [
    "COLUMNS",
    "EMPTY",
    "INSERT",
    "MAX_ROW_BYTES",
    "MAX_ROW_RECORDS",
    "EncodedRow",
    "StoredRow",
    "concat",
    "decode",
    "encode",
    "normalise",
]

MAX_ROW_RECORDS = 10_000
MAX_ROW_BYTES = 4 * 1024 * 1024
_HAS_OFFSETS, _HAS_KEYS, _HAS_HEADERS, _LZ4 = 1, 2, 4, 8
_MIN_COMPRESSED_BYTES = 256
_CODEC = pa.Codec("lz4_raw")
_LZ4_RATIO = 256  # the most bytes that one byte of lz4 can encode
_NUMBERS = struct.Struct(">qqqqq")
_RECORD_TYPES: dict[str, pa.DataType] = {name: RECORD_SCHEMA.field(name).type for name in RECORD_SCHEMA.names}

# Not of a Python list: Arrow would import pandas at the first of them, which a process may never need.
EMPTY: pa.RecordBatch = pa.RecordBatch.from_arrays(
    [pa.nulls(0, each.type) for each in RECORD_SCHEMA], schema=RECORD_SCHEMA
)


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """A row to store. ``base`` and ``last`` count from the first record of the append, or are offsets if sparse."""

    base: int
    last: int
    count: int
    min_ts: int
    max_ts: int
    flags: int
    raw_bytes: int
    payload: Any

    def values(self, partition_id: int, base: int, appended_ms: int) -> tuple[Any, ...]:
        """Return the parameters of `INSERT`; ``base`` is added to the offsets (0 if they are sparse)."""
        first, last = base + self.base, base + self.last
        stored = StoredRow(first, last, self.count, self.flags, self.raw_bytes, self.payload, None)
        return (
            partition_id, first, last, self.count, self.min_ts, self.max_ts, appended_ms, self.flags,
            self.payload.size, self.raw_bytes, self.payload, checksum_of(stored),
        )  # fmt: skip


INSERT = (
    "INSERT INTO batches (partition_id, base_offset, last_offset, count, min_ts, max_ts, appended_ms, flags, bytes, "
    "raw_bytes, payload, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row read from the file: `COLUMNS`. The checksum is null in rows of earlier versions."""

    base_offset: int
    last_offset: int
    count: int
    flags: int
    raw_bytes: int
    payload: bytes
    checksum: int | None


COLUMNS = ", ".join(field.name for field in fields(StoredRow))


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
    """Return records as timestamp, key, value, headers (and offset if given), with the types of RECORD_SCHEMA.

    Args:
        records: The caller's records; absent columns become null, an absent timestamp becomes now.
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
        now = append_time_ms if append_time_ms is not None else unix_ms()
        columns["timestamp"] = pa.repeat(pa.scalar(now, pa.int64()), count)
    if columns["timestamp"].null_count:
        raise LogError(
            "records without a timestamp", hint="give each record a timestamp in milliseconds since the epoch"
        )
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def encode(records: pa.RecordBatch, *, compression: str = "lz4", sparse: bool = False) -> list[EncodedRow]:
    """Encode normalised records as rows of at most ``MAX_ROW_RECORDS`` and about ``MAX_ROW_BYTES``."""
    return [_encode_one(piece, start, compression, sparse=sparse) for start, piece in _pieces(records)]


def decode(row: StoredRow, topic: str, partition: int) -> pa.RecordBatch:
    """Decode a stored row as RECORD_SCHEMA.

    Args:
        row: The stored row.
        topic: Its topic, for the error.
        partition: Its partition, for the error.

    Raises:
        LogError: The row is damaged.
    """
    try:
        return _decoded(row)
    except (ArithmeticError, LookupError, ValueError, MemoryError, OSError, pa.ArrowException) as error:
        raise LogError(
            f"{topic}-{partition}: the records from offset {row.base_offset} to {row.last_offset} are damaged in the "
            f"file of the log: {error}",
            hint="The disk or another program has changed the file: restore it from a copy.",
            topic=topic,
            partition=partition,
            offset=row.base_offset,
        ) from error


def checksum_of(row: StoredRow) -> int:
    """Return the CRC32C of a row's payload and of the numbers that are needed to decode it."""
    numbers = _NUMBERS.pack(row.base_offset, row.last_offset, row.count, row.flags, row.raw_bytes)
    return crc32c(numbers, crc32c(row.payload))


def _decoded(row: StoredRow) -> pa.RecordBatch:
    if row.checksum is not None and row.checksum != checksum_of(row):
        raise ValueError("its checksum is wrong")
    buffer = pa.py_buffer(row.payload)
    if row.flags & _LZ4:
        if not 0 <= row.raw_bytes <= _LZ4_RATIO * len(row.payload):
            raise ValueError(f"{len(row.payload):,} bytes of lz4 cannot be {row.raw_bytes:,} bytes")
        buffer = _CODEC.decompress(buffer, row.raw_bytes)
    stored = pa.ipc.read_record_batch(buffer, _SCHEMAS[row.flags & 7])
    if row.checksum is None:  # of an earlier version: nothing else says that it is whole
        stored.validate(full=True)
    if stored.num_rows != row.count:
        raise ValueError(f"{stored.num_rows} records instead of {row.count}")
    timestamp, value = stored.column(0), stored.column(1)
    position = 2
    if row.flags & _HAS_OFFSETS:
        offsets = stored.column(position)
        position += 1
    else:
        offsets = _arange(row.base_offset, row.count)
    if row.flags & _HAS_KEYS:
        key = stored.column(position)
        position += 1
    else:
        key = pa.nulls(row.count, pa.large_binary())
    headers = stored.column(position) if row.flags & _HAS_HEADERS else pa.nulls(row.count, HEADERS_TYPE)
    return pa.RecordBatch.from_arrays([offsets, timestamp, key, value, headers], schema=RECORD_SCHEMA)


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches."""
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
