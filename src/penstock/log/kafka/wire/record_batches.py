"""Encoding of Kafka's record batches from Arrow columns, and copying of stored ones; `batch_reader` decodes them.

A batch that a fetch has brought, and that goes to another topic, is copied as it is, with its compression, if a broker
accepts it from a producer. The others are decoded and encoded anew: those with gaps between their offsets, those whose
times the broker has set, the one that is not wanted from its first record on, and runs of tiny ones, each of which
would take a request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError
from crc32c import crc32c

from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.batch_format import (
    AFTER_CRC,
    CODEC,
    HEADER,
    LENGTH_ENDS,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    DamagedError,
    compress,
    damaged,
)
from penstock.log.kafka.wire.batch_reader import (
    AbortedRecords,
    BatchHead,
    BatchSource,
    check_batch,
    decode_batches,
    end_of_batches,
    whole_batches,
)
from penstock.log.kafka.wire.connection import check
from penstock.log.kafka.wire.fetch import aborted_of, fetch_request
from penstock.log.kafka.wire.few_records import FEW, encode_few
from penstock.log.kafka.wire.record_columns import VarintColumn, write_headers
from penstock.log.stored_batches import StoredBatch, StoredRecords, StoredStretch, stretches_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.log.kafka.wire.cluster import Cluster

    Ints = NDArray[np.int64]

__all__ = ["NO_PRODUCER", "ProducerState", "encode_batches", "fetch_stored", "stored_batches"]

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


_TINY_BYTES, _FEW = 2 << 10, 8
_BATCH_BYTES = 900_000
_DELETE_HORIZON = 0x40  # the base timestamp of such a batch is not that of a record
_NOT_NOW = (KafkaError.OFFSET_OUT_OF_RANGE,)


def fetch_stored(
    cluster: Cluster, positions: Mapping[TopicPartition, int], most_bytes: int
) -> dict[TopicPartition, StoredRecords]:
    """Fetch committed batches of many partitions without waiting, by one request to each leader.

    Args:
        cluster: The cluster.
        positions: The offset to read from, by partition; one that is out of range is left out of the result.
        most_bytes: The limit of each partition, unless its first batch is larger.

    Raises:
        KafkaException: Like librdkafka's consumer. There are no retries here.
        LogError: A batch is damaged.
    """
    stored, unread = _fetch(cluster, positions, most_bytes)
    for tp in unread:  # its first batch is larger than the rest of the answer: alone it comes whole
        stored |= _fetch(cluster, {tp: positions[tp]}, most_bytes)[0]
    return stored


def _fetch(
    cluster: Cluster, positions: Mapping[TopicPartition, int], most_bytes: int
) -> tuple[dict[TopicPartition, StoredRecords], list[TopicPartition]]:
    sent = []
    stored: dict[TopicPartition, StoredRecords] = {}
    unread: list[TopicPartition] = []
    try:
        for connection, places in cluster.by_leader(positions).items():
            offsets = {tp: positions[tp] for tp in places}
            sent.append((connection, connection.send(fetch_request(offsets, most_bytes, "read_committed", 0))))
        answers = [connection.receive(number) for connection, number in sent]
    except BaseException:
        cluster.forget()  # answers are still to come
        raise
    for answer in answers:
        check(getattr(answer, "error_code", 0), "fetching")
        for topic in answer.responses:
            for part in topic.partitions:
                tp = TopicPartition(topic.topic, part.partition_index)
                if part.error_code in _NOT_NOW:
                    continue
                check(part.error_code, f"reading {tp.topic}-{tp.partition} from offset {positions[tp]}")
                read = _read(part, positions[tp], BatchSource(tp, cluster.most_unpacked_bytes))
                if read.next_offset > positions[tp]:
                    stored[tp] = read
                elif part.records or part.last_stable_offset > positions[tp]:
                    unread.append(tp)
    return stored, unread if len(positions) > 1 else []


def _read(part: Any, start: int, source: BatchSource) -> StoredRecords:
    return stored_batches(bytes(part.records or b""), start, aborted_of(part, "read_committed"), source)


def stored_batches(
    data: bytes, start: int, aborted: Sequence[tuple[int, int]] | None, source: BatchSource
) -> StoredRecords:
    """Return the batches of a fetch's answer from an offset on; see `decode_batches`.

    Raises:
        LogError: A batch has an old message format, or is damaged.
    """
    drops, seen, batches = AbortedRecords(aborted), -1, []
    rewritten: list[tuple[BatchHead, int, int]] = []  # neighbours, which are decoded together
    at = start

    def flush() -> None:
        if len(rewritten) == 1 and _copies(rewritten[0][0], start):
            batches.append(_as_it_is(data, *rewritten[0]))
        elif rewritten:
            batches.extend(_anew(data[rewritten[0][1] : rewritten[-1][2]], start, rewritten[0][0], source))
        rewritten.clear()

    try:
        for head, begin, stop in whole_batches(memoryview(data)):
            at, first = head.base, begin - HEADER.size
            check_batch(head, memoryview(data)[first:stop], seen)
            seen = head.base + head.last
            if drops.drops(head, data, begin, stop) or not head.records or seen < start:
                flush()
                continue
            tiny = (stop - first < _TINY_BYTES and head.records < _FEW) or not _copies(head, start)
            if not tiny or (rewritten and rewritten[-1][0].attributes & CODEC != head.attributes & CODEC):
                flush()
            if tiny:
                rewritten.append((head, first, stop))
            else:
                batches.append(_as_it_is(data, head, first, stop))
        flush()
    except DamagedError as error:
        raise damaged(source.tp, at, error) from error
    return StoredRecords(tuple(batches), max(seen + 1, start))


def _copies(head: BatchHead, start: int) -> bool:
    """Return whether a broker accepts a batch as it is from a producer, and all of it is wanted."""
    kept = not head.attributes & (LOG_APPEND_TIME | _DELETE_HORIZON)
    return kept and head.records == head.last + 1 and head.base >= start


def _as_it_is(data: bytes, head: BatchHead, first: int, stop: int) -> StoredBatch:
    return StoredBatch(data[first:stop], head.records, (StoredStretch(head.base, head.records),))


def _anew(data: bytes, start: int, head: BatchHead, source: BatchSource) -> Iterator[StoredBatch]:
    """Yield decoded batches, encoded with the codec of the first."""
    while data:
        fetched = decode_batches(data, start, 1 << 62, None, source)
        row = 0
        for encoded, count in encode_batches(fetched.records, _BATCH_BYTES, head.attributes & CODEC):
            yield StoredBatch(encoded, count, stretches_of(fetched.records.slice(row, count)))
            row += count
        after = fetched.next_offset
        if after >= end_of_batches(data, start):
            return
        # the batches together unpack to more than is decoded at once
        data = data[
            next(begin - HEADER.size for each, begin, _ in whole_batches(memoryview(data)) if each.base >= after) :
        ]
