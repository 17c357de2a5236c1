"""The partition of a key, as Kafka's default partitioner chooses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.serde.buffers import large_binary
from penstock.serde.murmur2 import murmur2, murmur2_many

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KeyPartitioner", "partition_for", "partitions_for", "to_positive"]

_FEW, _FEW_BYTES = 16, 4096  # keys, and their buffers: hashed one by one, as work by column takes as long to begin


def to_positive(number: int) -> int:
    """Return Kafka's ``Utils.toPositive``: the number without its sign bit."""
    return number & 0x7FFFFFFF


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a key by Kafka's default partitioner."""
    return to_positive(murmur2(key)) % partitions


class KeyPartitioner:
    """Chooses partitions as Kafka's producer does: by the key, and without one any, here in turn for each topic."""

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
