"""The 128-bit murmur3 hash by which Kafka Streams detects a changed value, also of whole columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.serde.buffers import large_binary, parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HASH_BYTES", "hash128", "hash128_many"]

HASH_BYTES = 16
_SEED = 104729
_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_N1, _N2 = 0x52DCE729, 0x38495AB5
_MIX1, _MIX2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_LONG_VALUE_BYTES = 4096  # so many rounds over a column for the sake of one long value cost more than hashing it alone


def hash128(data: bytes) -> bytes:
    """Return Java's ``Murmur3.hash128``: both longs, big-endian.

    >>> hash128(b"kafka").hex()
    'c1ba8801115a620ca8402311f6596740'
    """
    h1 = h2 = _SEED
    blocks = len(data) // 16
    for i in range(blocks):
        k1 = int.from_bytes(data[16 * i : 16 * i + 8], "little")
        k2 = int.from_bytes(data[16 * i + 8 : 16 * i + 16], "little")
        h1 = (_rotated(h1 ^ _first(k1), 27) + h2) * 5 + _N1 & _MASK
        h2 = (_rotated(h2 ^ _second(k2), 31) + h1) * 5 + _N2 & _MASK
    tail = data[16 * blocks :]
    h1 ^= _first(int.from_bytes(tail[:8], "little")) ^ len(data)
    h2 ^= _second(int.from_bytes(tail[8:], "little")) ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    h1, h2 = _finished(h1), _finished(h2)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return h1.to_bytes(8, "big") + h2.to_bytes(8, "big")


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def _first(word: int) -> int:
    return _rotated(word * _C1 & _MASK, 31) * _C2 & _MASK


def _second(word: int) -> int:
    return _rotated(word * _C2 & _MASK, 33) * _C1 & _MASK


def _finished(number: int) -> int:
    number = (number ^ number >> 33) * _MIX1 & _MASK
    number = (number ^ number >> 33) * _MIX2 & _MASK
    return number ^ number >> 33


def hash128_many(values: pa.Array) -> NDArray[np.uint8]:
    """Return `hash128` of every row, one row of 16 bytes each; the hash of null rows is undefined."""
    values = large_binary(values)
    body, offsets = parts(values)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if not len(lengths):
        return np.empty((0, HASH_BYTES), np.uint8)
    lengths = np.where(np.asarray(values.is_valid()), lengths, 0) if values.null_count else lengths
    low, high = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(high - low + 16, np.uint8)
    padded[: high - low] = body[low:high]
    words: NDArray[np.uint64] = np.ndarray((high - low + 9,), np.dtype("<u8"), padded, strides=(1,))
    if lengths.max() < _LONG_VALUE_BYTES:
        return _hash(words, starts - low, lengths)
    hashes = np.empty((len(lengths), HASH_BYTES), np.uint8)
    short = np.flatnonzero(lengths < _LONG_VALUE_BYTES)
    hashes[short] = _hash(words, starts[short] - low, lengths[short])
    for row in np.flatnonzero(lengths >= _LONG_VALUE_BYTES).tolist():
        hashes[row] = np.frombuffer(hash128(values[row].as_py()), np.uint8)
    return hashes


def _hash(words: NDArray[np.uint64], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Hash all rows; ``words[i]`` is the word that begins at byte i, so one gather takes a word of every value."""
    h1 = np.full(len(starts), _SEED, np.uint64)
    h2 = h1.copy()
    blocks = lengths >> 4
    everywhere = int(blocks.min()) if len(blocks) else 0
    for i in range(int(blocks.max()) if len(blocks) else 0):
        rows = slice(None) if i < everywhere else np.flatnonzero(blocks > i)
        at = starts[rows] + 16 * i
        h1[rows] = (_turned(h1[rows] ^ _firsts(words[at]), 27) + h2[rows]) * np.uint64(5) + np.uint64(_N1)
        h2[rows] = (_turned(h2[rows] ^ _seconds(words[at + 8]), 31) + h1[rows]) * np.uint64(5) + np.uint64(_N2)
    at = starts + (blocks << 4)
    rest = lengths & 15
    size = lengths.astype(np.uint64)
    h1 ^= _firsts(words[at] & _low_bytes(np.minimum(rest, 8))) ^ size
    h2 ^= _seconds(words[at + 8] & _low_bytes(np.maximum(rest - 8, 0))) ^ size
    h1 += h2
    h2 += h1
    h1, h2 = _ends(h1), _ends(h2)
    h1 += h2
    h2 += h1
    return np.stack([h1, h2], axis=1).astype(">u8").view(np.uint8).reshape(-1, HASH_BYTES)


def _low_bytes(counts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return masks of this many low bytes, 0 to 8."""
    masks = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)
    return masks[counts]


def _turned(numbers: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))


def _firsts(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return _turned(numbers * np.uint64(_C1), 31) * np.uint64(_C2)


def _seconds(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return _turned(numbers * np.uint64(_C2), 33) * np.uint64(_C1)


def _ends(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(_MIX1)
    numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(_MIX2)
    return numbers ^ (numbers >> np.uint64(33))
