"""Kafka's record batches (message format 2) from and to Arrow columns.

A record begins with its length, so records are found one after the other; all else is read and written by column. That
costs a quarter of what a client costs that makes an object of each record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from penstock.errors import LogError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, Fetched
from penstock.log.kafka.wire.compression import compress, decompress
from penstock.log.kafka.wire.record_headers import read_headers, write_headers
from penstock.log.kafka.wire.varints import VarintColumn, read_unsigned, read_varints

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["NO_PRODUCER", "ProducerState", "decode_batches", "encode_batches", "end_of_batches"]

# base offset, length after this field, leader epoch, magic, crc, attributes, last offset delta, first and last
# timestamp, producer id, producer epoch, first sequence, count
_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_LENGTH_ENDS = 12
_CRC_ENDS = 21
_CODEC, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_MAGIC = 2
_ABORT_MARKER = 0
_MORE = 0x80  # the bit of a varint's byte that says that another follows
_NO_HEADERS, _NOTHING = pa.scalar(b"\0", pa.large_binary()), pa.scalar(b"", pa.large_binary())
_MOST_RECORD_OVERHEAD = 32  # bytes of a record beside key, value and headers, rounded up


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What idempotence and transactions put into a batch: Kafka's producer id, its epoch, and the next sequence."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False


NO_PRODUCER = ProducerState()


def decode_batches(data: bytes, start: int, end: int, aborted: Sequence[tuple[int, int]] | None = ()) -> Fetched:
    """The records of these batches with start <= offset < end, and where to read on: after the last whole batch.

    Args:
        data: Batches one after the other, as a fetch gives them; the last may be cut off.
        start: The offset that was asked for; a batch may begin before it.
        end: Where to stop.
        aborted: Aborted transactions, as (producer id, first offset): their records are left out. None keeps all.

    Raises:
        LogError: If the batches are of an old message format, or damaged.
    """
    whole = memoryview(data)
    open_aborts = sorted(aborted or (), key=lambda each: each[1])
    dropping: set[int] = set()
    parts: list[bytes] = []  # what the columns are made of: ``data`` itself, and what was compressed in it
    data_at: int | None = None  # where ``data`` begins in these
    counts: list[int] = []
    bases: list[int] = []
    stamps: list[int] = []
    fixed: list[bool] = []
    starts: list[int] = []
    place = filled = 0
    next_offset = start
    while place + _HEADER.size <= len(whole):
        base, length, _, magic, crc, attributes, last, first_ms, last_ms, producer, _, _, count = _HEADER.unpack_from(
            whole, place
        )
        stop = place + _LENGTH_ENDS + length
        if stop > len(whole):
            break
        if magic != _MAGIC:
            raise LogError(
                f"offset {base} is in a record batch of message format {magic}; format {_MAGIC} is read",
                hint="Kafka writes format 2 since 0.11: copy the old records into a new topic",
            )
        if crc32c(whole[place + _CRC_ENDS : stop]) != crc:
            raise LogError(
                f"the record batch at offset {base} is damaged: its checksum is wrong",
                hint="a broker's disk or the network damaged it; let another replica lead the partition",
            )
        begin, place = place + _HEADER.size, stop
        next_offset = base + last + 1
        if aborted is not None:
            while open_aborts and open_aborts[0][1] <= base + last:
                dropping.add(open_aborts.pop(0)[0])
            if attributes & _CONTROL:
                if attributes & _TRANSACTIONAL and _marker(data, begin) == _ABORT_MARKER:
                    dropping.discard(producer)
                continue
            if attributes & _TRANSACTIONAL and producer in dropping:
                continue
        elif attributes & _CONTROL:
            continue
        if next_offset <= start or base >= end or not count:
            continue
        if attributes & _CODEC:
            body = decompress(attributes & _CODEC, whole[begin:stop])
            fits = _find_records(body, 0, count, filled, starts) == len(body)
            parts.append(body)
            filled += len(body)
        else:
            if data_at is None:
                data_at = filled
                parts.append(data)
                filled += len(data)
            fits = _find_records(data, begin, count, data_at, starts) == stop
        if not fits:
            raise LogError(f"the record batch at offset {base} is damaged: {count} records do not fill it")
        counts.append(count)
        bases.append(base)
        fixed.append(bool(attributes & _LOG_APPEND_TIME))
        stamps.append(last_ms if fixed[-1] else first_ms)
    if not starts:
        return Fetched(_EMPTY, next_offset)
    joined = pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))
    records = _columns(joined, np.array(starts, np.int64), np.array(counts), bases, stamps, fixed)
    offsets = records.column("offset").to_numpy()
    low, high = np.searchsorted(offsets, [start, end])
    return Fetched(records.slice(low, high - low), next_offset)


def end_of_batches(data: bytes | memoryview, offset: int) -> int:
    """The offset after the last whole batch; ``offset`` if there is none."""
    place = 0
    while place + _HEADER.size <= len(data):
        base, length, _, _, _, _, last, *_ = _HEADER.unpack_from(data, place)
        place += _LENGTH_ENDS + length
        if place > len(data):
            break
        offset = base + last + 1
    return offset


_EMPTY = pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)


def _marker(data: bytes, at: int) -> int:
    """Of a control batch: 0 abort, 1 commit. Its one record has a key of two short numbers, version and type."""
    _, at = read_unsigned(data, at)  # length
    at += 1  # attributes
    for _ in range(3):  # timestamp, offset, key length
        _, at = read_unsigned(data, at)
    return int.from_bytes(data[at + 2 : at + 4], "big")


def _find_records(data: bytes, at: int, count: int, shift: int, found: list[int]) -> int:
    """Notes where each record's attributes are (plus ``shift``), the first record being here; the end of the last."""
    note = found.append
    try:
        for _ in range(count):
            low = data[at]
            if low < _MORE:
                at += 1
                note(at + shift)
                at += low >> 1
                continue
            next_byte = data[at + 1]
            if next_byte < _MORE:
                at += 2
                note(at + shift)
                at += (low & 0x7F | next_byte << 7) >> 1
                continue
            length, at = read_unsigned(data, at)
            note(at + shift)
            at += length >> 1
    except IndexError:
        return -1
    return at


def _columns(
    data: pa.Buffer, attributes_at: Ints, counts: Ints, bases: list[int], stamps: list[int], fixed: list[bool]
) -> pa.RecordBatch:
    bytes_ = np.frombuffer(data, np.uint8)
    elapsed, at = read_varints(bytes_, attributes_at + 1)
    delta, at = read_varints(bytes_, at)
    if any(fixed):
        elapsed = np.where(np.repeat(np.array(fixed), counts), 0, elapsed)
    length, at = read_varints(bytes_, at)
    keys, at = _slices(data, at, length)
    length, at = read_varints(bytes_, at)
    values, at = _slices(data, at, length)
    count, at = read_varints(bytes_, at)
    headers = read_headers(data, at, count) if count.any() else pa.nulls(len(at), HEADERS_TYPE)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.repeat(np.array(bases, np.int64), counts) + delta),
            pa.array(np.repeat(np.array(stamps, np.int64), counts) + elapsed),
            keys,
            values,
            headers,
        ],
        schema=RECORD_SCHEMA,
    )


def _slices(data: pa.Buffer, begin: Ints, length: Ints) -> tuple[pa.Array, Ints]:
    """The pieces of data that begin there (length -1: null), and where they end."""
    valid = length >= 0
    if not valid.any():
        return pa.nulls(len(begin), pa.large_binary()), begin
    end = begin + np.maximum(length, 0)
    # Pieces and the gaps between them make one array without a copy; taking every other item copies only the pieces.
    edges = np.empty(2 * len(begin), np.int64)
    edges[0::2], edges[1::2] = begin, end
    mixed = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * len(begin) - 1, [None, pa.py_buffer(edges), data])
    pieces = mixed.take(pa.array(np.arange(0, len(edges), 2)))
    if not valid.all():
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(pieces), [bits, *pieces.buffers()[1:]])
    return pieces, end


def encode_batches(
    records: pa.RecordBatch, most_bytes: int, codec: int = 0, producer: ProducerState = NO_PRODUCER
) -> Iterator[tuple[bytes, int]]:
    """Record batches for a produce request, each with its number of records.

    Args:
        records: ``timestamp``, ``key``, ``value`` and ``headers`` as in RECORD_SCHEMA; other columns are not looked at.
        most_bytes: No batch is larger, before compression, unless a single record is.
        codec: The number of Kafka's compression codec; 0 none.
        producer: Sequences count on from its ``sequence``.
    """
    if not records.num_rows:
        return
    keys, values = (records.column(name).cast(pa.large_binary()) for name in ("key", "value"))
    headers = write_headers(records.column("headers")) if "headers" in records.schema.names else None
    key_sizes, value_sizes = _sizes(keys), _sizes(values)
    header_sizes = np.ones(records.num_rows, np.int64) if headers is None else _sizes(headers)
    ends = np.cumsum(np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + header_sizes + _MOST_RECORD_OVERHEAD)
    sequence = producer.sequence
    begin = 0
    while begin < records.num_rows:
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most_bytes - _HEADER.size, "right")))
        part = slice(begin, end)
        count = end - begin
        stamps = records.column("timestamp").slice(begin, count).to_numpy()
        body = _bodies(
            stamps - stamps[0],
            (keys.slice(begin, count), key_sizes[part]),
            (values.slice(begin, count), value_sizes[part]),
            (None if headers is None else headers.slice(begin, count), header_sizes[part]),
        )
        data = compress(codec, body) if codec else body
        attributes = codec | (_TRANSACTIONAL if producer.transactional else 0)
        times = (int(stamps[0]), int(stamps.max()))
        head = _AFTER_CRC.pack(attributes, count - 1, *times, producer.producer_id, producer.epoch, sequence, count)
        yield _framed(head, data), count
        if sequence >= 0:
            sequence = (sequence + count) & 0x7FFFFFFF
        begin = end


def _framed(head: bytes, data: bytes | memoryview) -> bytes:
    crc = crc32c(data, crc32c(head))
    length = _HEADER.size - _LENGTH_ENDS + len(data)
    front = struct.pack(">qiibI", 0, length, -1, _MAGIC, crc)
    return b"".join((front, head, data))


def _sizes(column: pa.Array) -> Ints:
    """Bytes of each; -1 of a null."""
    sizes: Ints = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _bodies(
    elapsed: Ints,
    keys: tuple[pa.Array, Ints],
    values: tuple[pa.Array, Ints],
    headers: tuple[pa.Array | None, Ints],
) -> memoryview:
    """The records themselves, one after the other."""
    count = len(elapsed)
    times, numbers = VarintColumn(elapsed), VarintColumn(np.arange(count))
    key_lengths, value_lengths = VarintColumn(keys[1]), VarintColumn(values[1])
    sizes = 1 + times.widths + numbers.widths + key_lengths.widths + value_lengths.widths
    sizes += np.maximum(keys[1], 0) + np.maximum(values[1], 0) + headers[1]
    attributes = VarintColumn(np.zeros(count, np.int64))
    front = _packed([VarintColumn(sizes), attributes, times, numbers, key_lengths])
    middle = _packed([value_lengths])
    key, value = (_empty_for_null(column) for column in (keys[0], values[0]))
    back = _NO_HEADERS if headers[0] is None else headers[0]
    joined = pc.binary_join_element_wise(front, key, middle, value, back, _NOTHING)
    return memoryview(joined.buffers()[2])[: _last_edge(joined)]


def _empty_for_null(column: pa.Array) -> pa.Array:
    return column.fill_null(b"") if column.null_count else column


def _last_edge(column: pa.Array) -> int:
    return int(np.frombuffer(column.buffers()[1], np.int64)[len(column)])


def _packed(columns: list[VarintColumn]) -> pa.Array:
    """Of each row the varints one after the other."""
    cells = np.concatenate([column.cells for column in columns], axis=1)
    counts = np.concatenate([np.arange(column.cells.shape[1]) < column.widths[:, None] for column in columns], axis=1)
    edges = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(sum(column.widths for column in columns), out=edges[1:])
    data = cells[counts] if edges[-1] != cells.size else cells.reshape(-1)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(cells), [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
