"""Decoding of Kafka's record batches into Arrow columns.

Batches are untrusted. A correct checksum only shows that one was transferred without errors: every length and count is
compared with the available bytes before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from crc32c import crc32c

from penstock.base.varints import read_unsigned
from penstock.log.base import RECORD_SCHEMA, Fetched, TopicPartition
from penstock.log.kafka.wire.batch_format import (
    ABORT_MARKER,
    CODEC,
    CONTROL,
    CRC_ENDS,
    HEADER,
    LENGTH_ENDS,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    DamagedError,
    damaged,
    decompress,
)
from penstock.log.kafka.wire.few_records import FEW, decode_few
from penstock.log.kafka.wire.record_columns import FoundRecords, RecordRange, find_records, record_columns

__all__ = [
    "MOST_UNPACKED_BYTES",
    "AbortedRecords",
    "BatchHead",
    "BatchSource",
    "check_batch",
    "decode_batches",
    "end_of_batches",
    "whole_batches",
]

MOST_UNPACKED_BYTES = 128 << 20
_LARGEST_OFFSET = (1 << 63) - 2
_EMPTY = pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)
_NOWHERE = TopicPartition("?", -1)


class BatchHead(NamedTuple):
    """The header of a batch, by the fields of the format."""

    base: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last: int
    first_ms: int
    last_ms: int
    producer: int
    producer_epoch: int
    sequence: int
    records: int


class BatchSource(NamedTuple):
    """The partition of batches, for errors, and the limit of their unpacked size, alone and together."""

    tp: TopicPartition = _NOWHERE
    most_unpacked_bytes: int = MOST_UNPACKED_BYTES


_UNKNOWN = BatchSource()


def decode_batches(
    data: bytes | memoryview,
    start: int,
    end: int,
    aborted: Sequence[tuple[int, int]] | None = (),
    source: BatchSource = _UNKNOWN,
) -> Fetched:
    """Decode the records with start <= offset < end; the next offset is after the last batch that was decoded.

    That is the last whole batch, unless the batches together unpack to more than the limit of ``source``.

    Args:
        data: The batches in a fetch's answer; the last may be cut off.
        start: The requested offset; a batch may begin before it.
        end: The end offset, exclusive.
        aborted: Aborted transactions, as (producer id, first offset): their records are left out. None keeps all.
        source: The partition and the limit of the unpacked size.

    Raises:
        LogError: A batch has an old message format, is damaged, or unpacks to more.
    """
    reader = _BatchReader(data, start, end, aborted, source.most_unpacked_bytes)
    try:
        for head, begin, stop in whole_batches(memoryview(data)):
            reader.at = head.base
            if not reader.add(head, begin, stop):
                break
        records = reader.records()
    except DamagedError as error:
        raise damaged(source.tp, reader.at if error.row is None else reader.base_of(error.row), error) from error
    except (ArithmeticError, LookupError, ValueError, MemoryError, struct.error, pa.ArrowException) as error:
        raise damaged(source.tp, reader.at, DamagedError(f"{type(error).__name__}: {error}")) from error
    return Fetched(records, max(reader.next_offset, start))


def end_of_batches(data: bytes | memoryview, offset: int) -> int:
    """Return the offset after the last whole batch; ``offset`` if there is none."""
    try:
        for head, _, _ in whole_batches(memoryview(data)):
            offset = max(offset, head.base + head.last + 1)
    except DamagedError:
        pass  # `decode_batches` raises it
    return offset


def whole_batches(data: memoryview) -> Iterator[tuple[BatchHead, int, int]]:
    """Yield the header of each whole batch, and the positions where its records begin and end."""
    position = 0
    while position + HEADER.size <= len(data):
        head = BatchHead._make(HEADER.unpack_from(data, position))
        begin, stop = position + HEADER.size, position + LENGTH_ENDS + head.length
        if stop > len(data):
            return
        if head.magic != MAGIC:
            raise DamagedError(
                f"it is of message format {head.magic}; format {MAGIC} is read",
                hint="Kafka writes format 2 since 0.11: copy the old records into a new topic.",
            )
        if stop < begin:
            raise DamagedError(f"its length is {head.length}")
        yield head, begin, stop
        position = stop


def check_batch(head: BatchHead, batch: bytes | memoryview, seen: int) -> None:
    """Check a batch's checksum, and its offsets against ``seen``, the end of the batch before.

    Raises:
        DamagedError: They are wrong.
    """
    last = head.base + head.last
    if crc32c(memoryview(batch)[CRC_ENDS:]) != head.crc:
        raise DamagedError("its checksum is wrong")
    if not (0 <= head.base <= last <= _LARGEST_OFFSET and 0 <= head.records <= head.last + 1):
        raise DamagedError(f"{head.records} records at offsets from {head.base} to {last}")
    if head.base <= seen:
        raise DamagedError(f"the batch before it ends at offset {seen}")


class AbortedRecords:
    """The aborted transactions of a partition, batch by batch in the order of their offsets.

    Args:
        aborted: Aborted transactions, as (producer id, first offset). None keeps the records of all.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]] | None) -> None:
        self._keeps_all = aborted is None
        self._open = sorted(aborted or (), key=lambda each: each[1])
        self._dropping: set[int] = set()

    def drops(self, head: BatchHead, data: bytes | memoryview, begin: int, stop: int) -> bool:
        """Return whether a batch belongs to an aborted transaction, or is a marker, which has no records for users."""
        is_control = bool(head.attributes & CONTROL)
        if self._keeps_all:
            return is_control
        while self._open and self._open[0][1] <= head.base + head.last:
            self._dropping.add(self._open.pop(0)[0])
        if is_control:
            if head.attributes & TRANSACTIONAL and _marker(data[begin:stop]) == ABORT_MARKER:
                self._dropping.discard(head.producer)
            return True
        return bool(head.attributes & TRANSACTIONAL) and head.producer in self._dropping


class _BatchReader:
    """The collected records of the batches in one fetch's answer.

    Attributes:
        at: The offset of the current batch.
        next_offset: The offset after the last batch that was read.
    """

    def __init__(
        self, data: bytes | memoryview, start: int, end: int, aborted: Sequence[tuple[int, int]] | None, most_bytes: int
    ) -> None:
        self.at = self.next_offset = start
        self._data = data
        self._range = (start, end)
        self._aborted = AbortedRecords(aborted)
        self._most_bytes = most_bytes
        self._unpacked = 0
        self._seen = -1  # the end of the batch before
        self._parts: list[bytes | memoryview] = []  # the buffers of the columns: the data itself, and unpacked batches
        self._filled = 0
        self._data_at: int | None = None  # where the data itself begins in these
        self._layout = FoundRecords()

    def add(self, head: BatchHead, begin: int, stop: int) -> bool:
        """Add a batch; return False if it must wait, as it unpacks to too much together with others."""
        last = head.base + head.last
        check_batch(head, memoryview(self._data)[begin - HEADER.size : stop], self._seen)
        start, end = self._range
        if (
            not self._aborted.drops(head, self._data, begin, stop)
            and head.records
            and last >= start
            and head.base < end
        ):
            if head.attributes & CODEC:
                body = decompress(head.attributes & CODEC, memoryview(self._data)[begin:stop], self._most_bytes)
                if self._unpacked and self._unpacked + len(body) > self._most_bytes:
                    return False
                self._unpacked += len(body)
                self._find(head, body, RecordRange(0, len(body), head.records), self._part(body))
            else:
                if self._data_at is None:
                    self._data_at = self._part(self._data)
                self._find(head, self._data, RecordRange(begin, stop, head.records), self._data_at)
        self._seen = last
        self.next_offset = last + 1
        return True

    def records(self) -> pa.RecordBatch:
        """Return the records of all added batches in the wanted range."""
        if not self._layout.starts:
            return _EMPTY
        joined = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        few = decode_few(bytes(joined), self._layout) if len(self._layout.starts) <= FEW else None
        records = record_columns(pa.py_buffer(joined), self._layout) if few is None else few
        low, high = records.column("offset").to_numpy().searchsorted(self._range)
        return records.slice(low, high - low)

    def base_of(self, row: int) -> int:
        """Return the offset of the batch of a row of `records`."""
        return self._layout.base_of(row)

    def _part(self, data: bytes | memoryview) -> int:
        at = self._filled
        self._parts.append(data)
        self._filled += len(data)
        return at

    def _find(self, head: BatchHead, data: bytes | memoryview, records: RecordRange, shift: int) -> None:
        if find_records(data, records, shift, self._layout.starts) != records.stop:
            raise DamagedError(f"{head.records} records do not fill it")
        is_fixed = bool(head.attributes & LOG_APPEND_TIME)
        stamp = head.last_ms if is_fixed else head.first_ms
        self._layout.add(records.moved(shift), (head.base, head.last), stamp, is_fixed=is_fixed)


def _marker(data: bytes | memoryview) -> int:
    """Return the type of a control batch: 0 abort, 1 commit. The key of its one record is (version, type)."""
    _, at = read_unsigned(data, 0)  # length
    at += 1  # attributes
    for _ in range(3):  # timestamp, offset, key length
        _, at = read_unsigned(data, at)
    if at + 4 > len(data):
        raise DamagedError("it is a control batch without a type")
    return int.from_bytes(data[at + 2 : at + 4], "big")
