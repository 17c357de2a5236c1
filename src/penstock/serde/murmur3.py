"""The 128-bit murmur3 hash by which Kafka Streams detects a changed value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mmh3
import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["HASH_BYTES", "hash128", "hash128_many"]

HASH_BYTES = 16
_SEED = 104729


def hash128(data: bytes) -> bytes:
    """Return Java's ``Murmur3.hash128``: both longs, big-endian.

    >>> hash128(b"kafka").hex()
    'c1ba8801115a620ca8402311f6596740'
    """
    return _big_endian(mmh3.mmh3_x64_128_digest(data, _SEED)).tobytes()


def hash128_many(values: pa.Array) -> NDArray[np.uint8]:
    """Return `hash128` of every row, one row of 16 bytes each; the hash of null rows is undefined."""
    digest = mmh3.mmh3_x64_128_digest
    hashes = [digest(value or b"", _SEED) for value in values.to_pylist()]
    return _big_endian(b"".join(hashes)).reshape(-1, HASH_BYTES)


def _big_endian(digests: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(digests, "<u8").astype(">u8").view(np.uint8)
