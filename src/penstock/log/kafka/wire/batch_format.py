"""The layout of Kafka's record batches (message format 2), and their compression codecs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.base.varints import read_unsigned
from penstock.errors import ConfigError, LogError

if TYPE_CHECKING:
    from penstock.log.base import TopicPartition

__all__ = [
    "ABORT_MARKER",
    "AFTER_CRC",
    "CODEC",
    "CONTROL",
    "CRC_ENDS",
    "HEADER",
    "LENGTH_ENDS",
    "LOG_APPEND_TIME",
    "MAGIC",
    "TRANSACTIONAL",
    "DamagedError",
    "codec_number",
    "compress",
    "damaged",
    "decompress",
]

# base offset, length after this field, leader epoch, magic, crc, attributes, last offset delta, first and last
# timestamp, producer id, producer epoch, first sequence, count
HEADER = struct.Struct(">qiibIhiqqqhii")
AFTER_CRC = struct.Struct(">hiqqqhii")
LENGTH_ENDS = 12
CRC_ENDS = 21
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
MAGIC = 2
ABORT_MARKER = 0


class DamagedError(ValueError):
    """A batch with invalid bytes; the reader adds the partition and the offset.

    Attributes:
        row: The row of the invalid record among those that are read together, if it is one record.
        hint: The remedy, if the broker has not damaged the batch.
    """

    def __init__(self, problem: str, *, row: int | None = None, hint: str = "") -> None:
        super().__init__(problem)
        self.row = row
        self.hint = hint


def damaged(tp: TopicPartition, offset: int, error: DamagedError) -> LogError:
    """Make the error for a batch that begins at an offset."""
    return LogError(
        f"{tp.topic}-{tp.partition}: the record batch at offset {offset} is damaged: {error}"
        if not error.hint
        else f"{tp.topic}-{tp.partition}: the record batch at offset {offset} is not read: {error}",
        hint=error.hint or "A broker's disk or the network damaged it: let another replica lead the partition.",
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
    )


_NAMES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_STREAMED = {1: "gzip", 3: "lz4", 4: "zstd"}
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_BLOCK_BYTES = 64 << 10
_USUAL_RATIO = 4
_SNAPPY_RATIO = 32  # its densest element copies 64 bytes by 3; rounded up
# Kafka's Java client only reads frames of independent blocks: version 1, independent, blocks of 64 KiB, and the
# checksum of these two bytes.
_LZ4_FRAME = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_STORED = 1 << 31


def codec_number(compression_type: str) -> int:
    """Return Kafka's number of a ``compression.type``.

    Raises:
        ConfigError: There is no such type.
    """
    try:
        return _NAMES[compression_type]
    except KeyError:
        raise ConfigError(f"compression.type={compression_type!r}", hint=f"one of {', '.join(_NAMES)}") from None


def decompress(codec: int, data: bytes | memoryview, most_bytes: int) -> bytes:
    """Decompress a batch's records.

    Args:
        codec: Kafka's number of the codec.
        data: The compressed records.
        most_bytes: The limit of the unpacked size.

    Raises:
        DamagedError: The codec is unknown, the data is damaged, or unpacks to more than ``most_bytes``.
    """
    if codec != _SNAPPY and codec not in _STREAMED:
        raise DamagedError(f"it is compressed by a codec of number {codec}, which is unknown")
    try:
        pieces = _unsnap(memoryview(data), most_bytes) if codec == _SNAPPY else _unpack(codec, data, most_bytes)
        unpacked: list[bytes | pa.Buffer] = []
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > most_bytes:
                raise _too_large(most_bytes)
            unpacked.append(piece)
    except (OSError, pa.ArrowException, struct.error, IndexError) as error:
        raise DamagedError(f"its compressed records cannot be read: {error}") from error
    return b"".join(unpacked)


def _unpack(codec: int, data: bytes | memoryview, most_bytes: int) -> Iterator[pa.Buffer]:
    piece_bytes = min(max(_BLOCK_BYTES, _USUAL_RATIO * len(data)), most_bytes + 1)
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), _STREAMED[codec]) as stream:
        while (piece := stream.read_buffer(piece_bytes)).size:  # read() would leak its bytes when it raises
            yield piece


def _too_large(most_bytes: int) -> DamagedError:
    return DamagedError(
        f"its records unpack to more than {most_bytes:,} bytes",
        hint="If such batches are intended, set penstock.kafka.max.unpacked.bytes to a larger number.",
    )


def compress(codec: int, data: bytes | memoryview) -> bytes:
    """Compress the records of a batch, in the form that Kafka's clients and brokers expect."""
    if codec == _SNAPPY:
        return _XERIAL_HEADER + b"".join(
            struct.pack(">i", len(piece)) + piece for piece in (_raw("snappy", each) for each in _blocks(data))
        )
    if codec == _LZ4:
        return b"".join([_LZ4_FRAME, *(_lz4_block(each) for each in _blocks(data)), b"\0\0\0\0"])
    buffer = pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, _STREAMED[codec]) as stream:
        stream.write(data)
    packed: bytes = buffer.getvalue().to_pybytes()
    return packed


def _blocks(data: bytes | memoryview) -> list[memoryview]:
    view = memoryview(data)
    return [view[at : at + _BLOCK_BYTES] for at in range(0, len(view), _BLOCK_BYTES)]


def _raw(name: str, data: memoryview) -> bytes:
    packed: bytes = pa.Codec(name).compress(data, asbytes=True)
    return packed


def _lz4_block(data: memoryview) -> bytes:
    packed = _raw("lz4_raw", data)
    if len(packed) >= len(data):
        return struct.pack("<I", len(data) | _LZ4_STORED) + bytes(data)
    return struct.pack("<I", len(packed)) + packed


def _unsnap(data: memoryview, most_bytes: int) -> Iterator[bytes]:
    """Decompress raw snappy, or blocks of it after the header of Java's clients."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        yield _unsnap_block(data, most_bytes)
        return
    at = len(_XERIAL_HEADER)
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < length <= len(data) - at:
            raise DamagedError(f"a block of {length} bytes does not fit into its compressed records")
        yield _unsnap_block(data[at : at + length], most_bytes)
        at += length


def _unsnap_block(data: memoryview, most_bytes: int) -> bytes:
    size, _ = read_unsigned(data, 0)
    if size > most_bytes:
        raise _too_large(most_bytes)
    if size > _SNAPPY_RATIO * len(data):
        raise DamagedError(f"{len(data)} bytes of snappy cannot be {size:,} bytes")
    unpacked: bytes = pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True)
    return unpacked
