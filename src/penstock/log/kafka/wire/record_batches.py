"""Encoding of Kafka's record batches from Arrow columns; `batch_reader` decodes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from penstock.log.kafka.wire.batch_format import AFTER_CRC, HEADER, LENGTH_ENDS, MAGIC, TRANSACTIONAL, compress
from penstock.log.kafka.wire.few_records import FEW, encode_few
from penstock.log.kafka.wire.record_columns import VarintColumn, write_headers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["NO_PRODUCER", "ProducerState", "encode_batches"]

_NO_HEADERS, _NOTHING = pa.scalar(b"\0", pa.large_binary()), pa.scalar(b"", pa.large_binary())
_MOST_RECORD_OVERHEAD = 32  # bytes of a record beside key, value and headers, rounded up


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The fields of a batch for idempotence and transactions: producer id, epoch, and the next sequence."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False


NO_PRODUCER = ProducerState()


def encode_batches(
    records: pa.RecordBatch,
    most_bytes: int,
    codec: int = 0,
    producer: ProducerState = NO_PRODUCER,
    on_packed: Callable[[int, int], None] = lambda packed, raw: None,  # noqa: ARG005
) -> Iterator[tuple[bytes, int]]:
    """Encode record batches for a produce request, each with its number of records.

    Args:
        records: ``timestamp``, ``key``, ``value`` and ``headers`` as in RECORD_SCHEMA; other columns are ignored.
        most_bytes: The size limit of a batch before compression, unless a single record is larger.
        codec: The number of Kafka's compression codec; 0 none.
        producer: Sequences count on from its ``sequence``.
        on_packed: Called with the size of each batch's records, compressed and not.
    """
    if not records.num_rows:
        return
    if records.num_rows <= FEW:
        few = encode_few(records, most_bytes - HEADER.size, _MOST_RECORD_OVERHEAD)
        if few is not None:
            yield _batch(few[0], records.num_rows, few[1:], codec, producer, on_packed), records.num_rows
            return
    keys, values = (records.column(name).cast(pa.large_binary()) for name in ("key", "value"))
    headers = write_headers(records.column("headers")) if "headers" in records.schema.names else None
    key_sizes, value_sizes = _sizes(keys), _sizes(values)
    header_sizes = np.ones(records.num_rows, np.int64) if headers is None else _sizes(headers)
    ends = np.cumsum(np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + header_sizes + _MOST_RECORD_OVERHEAD)
    begin = 0
    while begin < records.num_rows:
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most_bytes - HEADER.size, "right")))
        part = slice(begin, end)
        count = end - begin
        stamps = records.column("timestamp").slice(begin, count).to_numpy()
        body = _bodies(
            stamps - stamps[0],
            (keys.slice(begin, count), key_sizes[part]),
            (values.slice(begin, count), value_sizes[part]),
            (None if headers is None else headers.slice(begin, count), header_sizes[part]),
        )
        yield _batch(body, count, (int(stamps[0]), int(stamps.max())), codec, producer, on_packed), count
        if producer.sequence >= 0:
            producer = replace(producer, sequence=(producer.sequence + count) & 0x7FFFFFFF)
        begin = end


def _batch(
    body: bytes | memoryview,
    count: int,
    times: tuple[int, int],
    codec: int,
    producer: ProducerState,
    on_packed: Callable[[int, int], None],
) -> bytes:
    """Return a whole batch; its times are that of its first record and the largest."""
    data = compress(codec, body) if codec else body
    on_packed(len(data), len(body))
    attributes = codec | (TRANSACTIONAL if producer.transactional else 0)
    identity = producer.producer_id, producer.epoch, producer.sequence
    head = AFTER_CRC.pack(attributes, count - 1, *times, *identity, count)
    crc = crc32c(data, crc32c(head))
    length = HEADER.size - LENGTH_ENDS + len(data)
    front = struct.pack(">qiibI", 0, length, -1, MAGIC, crc)
    return b"".join((front, head, data))


def _sizes(column: pa.Array) -> Ints:
    """Return the size of each value in bytes; -1 for null."""
    sizes: Ints = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _bodies(
    elapsed: Ints,
    keys: tuple[pa.Array, Ints],
    values: tuple[pa.Array, Ints],
    headers: tuple[pa.Array | None, Ints],
) -> memoryview:
    """Return the encoded records, one after the other."""
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
    """Concatenate the varints of each row."""
    cells = np.concatenate([column.cells for column in columns], axis=1)
    counts = np.concatenate([np.arange(column.cells.shape[1]) < column.widths[:, None] for column in columns], axis=1)
    edges = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(sum(column.widths for column in columns), out=edges[1:])
    data = cells[counts] if edges[-1] != cells.size else cells.reshape(-1)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(cells), [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
