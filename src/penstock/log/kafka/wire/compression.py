"""The compression codecs of Kafka's record batches, by Arrow's."""

from __future__ import annotations

import struct

import pyarrow as pa

from penstock.errors import ConfigError, LogError
from penstock.log.kafka.wire.varints import read_unsigned

__all__ = ["codec_number", "compress", "decompress"]

_NAMES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_STREAMED = {1: "gzip", 3: "lz4", 4: "zstd"}
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_BLOCK_BYTES = 64 << 10
# Kafka's Java client reads frames of independent blocks only: version 1, independent, blocks of 64 KiB, and the
# checksum of these two bytes.
_LZ4_FRAME = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_STORED = 1 << 31


def codec_number(compression_type: str) -> int:
    """Kafka's number of a ``compression.type``.

    Raises:
        ConfigError: If there is none of that name.
    """
    try:
        return _NAMES[compression_type]
    except KeyError:
        raise ConfigError(f"compression.type={compression_type!r}", hint=f"one of {', '.join(_NAMES)}") from None


def decompress(codec: int, data: bytes | memoryview) -> bytes:
    """What a batch's records were before compression.

    Raises:
        LogError: If the codec is unknown or the data damaged.
    """
    try:
        if codec == _SNAPPY:
            return _unsnap(memoryview(data))
        name = _STREAMED[codec]
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
            records: bytes = stream.read()
            return records
    except KeyError:
        raise LogError(f"a record batch is compressed by a codec of number {codec}, which is unknown") from None
    except (OSError, pa.ArrowException, struct.error) as error:
        raise LogError(f"a record batch's compressed records cannot be read: {error}") from error


def compress(codec: int, data: bytes | memoryview) -> bytes:
    """The records of a batch, compressed as Kafka's clients and brokers expect it."""
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


def _unsnap(data: memoryview) -> bytes:
    """Raw snappy, or blocks of it after the header that Java's clients write."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _unsnap_block(data)
    pieces = []
    at = len(_XERIAL_HEADER)
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        pieces.append(_unsnap_block(data[at : at + length]))
        at += length
    return b"".join(pieces)


def _unsnap_block(data: memoryview) -> bytes:
    size, _ = read_unsigned(data, 0)
    unpacked: bytes = pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True)
    return unpacked
