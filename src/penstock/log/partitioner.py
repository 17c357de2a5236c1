"""The partition of a key, as Kafka's default partitioner chooses it by murmur2, one key at a time and by the column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.serde.column import large_binary, parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KeyPartitioner", "murmur2", "partition_for", "partitions_for", "to_positive"]

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_LONG_KEY_BYTES = 512  # from here on the loop over words costs more by the column than by the key


def murmur2(data: bytes) -> int:
    """Return Kafka's ``Utils.murmur2``, a signed integer of 32 bits.

    >>> murmur2(b"kafka")
    -798503068
    """
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def murmur2_many(keys: pa.Array) -> NDArray[np.uint32]:
    """Return `murmur2` of every row, unsigned; undefined for null rows."""
    keys = large_binary(keys)
    body, offsets = parts(keys)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if not len(lengths):
        return np.empty(0, np.uint32)
    lengths = np.where(np.asarray(keys.is_valid()), lengths, 0) if keys.null_count else lengths
    low, high = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(high - low + 4, np.uint8)
    padded[: high - low] = body[low:high]
    words: NDArray[np.uint32] = np.ndarray((high - low + 1,), np.dtype("<u4"), padded, strides=(1,))
    short = np.flatnonzero(lengths < _LONG_KEY_BYTES) if lengths.max() >= _LONG_KEY_BYTES else None
    if short is None:
        return _hash(words, starts - low, lengths)
    hashes = np.empty(len(lengths), np.uint32)
    hashes[short] = _hash(words, starts[short] - low, lengths[short])
    for row in np.flatnonzero(lengths >= _LONG_KEY_BYTES).tolist():
        hashes[row] = murmur2(keys[row].as_py()) & _MASK
    return hashes


def _hash(words: NDArray[np.uint32], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Hash all rows; ``words[i]`` is the word that begins at byte i, so one gather takes a word of every key."""
    m = np.uint32(_M)
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    counts = lengths >> 2
    if not len(h):
        return h
    everywhere = int(counts.min())
    for i in range(int(counts.max())):
        rows = slice(None) if i < everywhere else np.flatnonzero(counts > i)
        k = words[starts[rows] + 4 * i] * m
        k ^= k >> np.uint32(24)
        k *= m
        h[rows] = (h[rows] * m) ^ k
    rest = (lengths & 3).astype(np.uint32)
    rows = np.flatnonzero(rest)
    if len(rows):
        keep = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)[rest[rows]]
        h[rows] = (h[rows] ^ (words[starts[rows] + (counts[rows] << 2)] & keep)) * m
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    return h


_FEW, _FEW_BYTES = 16, 4096  # keys, and their buffers: hashed one by one, as work by column takes as long to begin


def to_positive(number: int) -> int:
    """Return Kafka's ``Utils.toPositive``: the number without its sign bit."""
    return number & 0x7FFFFFFF


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a key by Kafka's default partitioner."""
    return to_positive(murmur2(key)) % partitions


class KeyPartitioner:
    """The choice of partitions of Kafka's producer: by the key, and without one any, here in turn for each topic."""

    def __init__(self) -> None:
        self._without_key: dict[str, int] = {}  # the number of such records, by topic

    def partition(self, topic: str, key: bytes | None, partitions: int) -> int:
        """Return the partition of the next record."""
        if key is not None:
            return partition_for(key, partitions)
        number = self._without_key[topic] = self._without_key.get(topic, -1) + 1
        return number % partitions


def partitions_for(keys: pa.Array, partitions: int, *, seed: int = 0) -> NDArray[np.int32]:
    """Return the partition of every row by Kafka's default partitioner.

    Kafka spreads null keys over the partitions at random, in runs. Here they go round robin from ``seed`` on, so that
    the same rows always go the same way: a batch that is run again must have the same output.
    """
    keys = large_binary(keys)
    if partitions == 1:
        return np.zeros(len(keys), np.int32)
    if len(keys) <= _FEW and not keys.null_count and keys.get_total_buffer_size() <= _FEW_BYTES:
        return np.array([partition_for(key, partitions) for key in keys.to_pylist()], np.int32)
    result = ((murmur2_many(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    if keys.null_count:
        nulls = np.flatnonzero(np.asarray(keys.is_null()))
        result[nulls] = (seed + np.arange(len(nulls))) % partitions
    return result
