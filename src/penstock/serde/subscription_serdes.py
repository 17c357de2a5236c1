"""The bytes of a foreign-key join: subscriptions, responses, and the keys of the subscription store.

Subscription: version and, in its highest bit, whether there is no hash; instruction; hash (16 bytes, may be missing);
primary key; from version 1 on the partition of the primary key (4 bytes).
Response: version 0 and the same bit; hash (may be missing); the foreign value, no bytes at all for null.
Combined key: length of the foreign key (4 bytes), foreign key, primary key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SerializationError
from penstock.serde.auto import AutoSerde
from penstock.serde.base import Serde
from penstock.serde.buffers import LARGE_BINARY, cut, from_fixed_width, join, large_binary, parts
from penstock.serde.column import Column
from penstock.serde.murmur3 import HASH_BYTES
from penstock.serde.rowwise import BaseSerde
from penstock.serde.subscriptions import Hashes, ResponseColumn, Subscription, SubscriptionColumn, SubscriptionResponse

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ResponseSerde", "SubscriptionSerde", "combined_keys", "foreign_prefixes", "primary_keys"]

_NO_HASH = 0x80
_VERSION = 1
_INT_BYTES = 4


def _big_endian(numbers: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(numbers, dtype=">i4").view(np.uint8).reshape(-1, _INT_BYTES)


def _hash_bytes(hashes: Hashes) -> pa.Array:
    """Return the hashes, no bytes where there is none."""
    if hashes.present.all():
        return from_fixed_width(hashes.data)
    return from_fixed_width(hashes.data[hashes.present], hashes.present).fill_null(b"")


def _read_hashes(body: NDArray[np.uint8], starts: NDArray[np.int64], present: NDArray[np.bool_]) -> Hashes:
    data = np.zeros((len(starts), HASH_BYTES), np.uint8)
    data[present] = body[starts[present, None] + np.arange(HASH_BYTES)]
    return Hashes(data, present)


class SubscriptionSerde(BaseSerde):
    """Kafka's ``SubscriptionWrapperSerde``; reads versions 0 and 1, writes 1."""

    def __init__(self, inner: Serde[Any]) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return f"subscription<{self.inner.name}>"

    def serialize(self, value: Subscription | None) -> bytes | None:
        if value is None:
            return None
        key = self.inner.serialize(value.primary_key)
        if key is None:
            raise SerializationError("a subscription whose primary key is null", serde=self.name)
        version = _VERSION | (_NO_HASH if value.hash is None else 0)
        partition = value.partition.to_bytes(_INT_BYTES, "big", signed=True)
        return bytes((version, value.instruction)) + (value.hash or b"") + key + partition

    def deserialize(self, data: bytes | None) -> Subscription | None:
        if data is None:
            return None
        start = 2 if data[:1] >= b"\x80" else 2 + HASH_BYTES
        version = data[0] & 0x7F if data else -1
        end = len(data) - (_INT_BYTES if version == _VERSION else 0)
        if version not in (0, _VERSION) or end < start or data[1] > 3:
            self.reject(data, "a subscription of version 0 or 1")
        hashed = data[2:start] or None
        partition = int.from_bytes(data[end:], "big", signed=True) if version else -1
        return Subscription(hashed, data[1], self.inner.deserialize(data[start:end]), partition)

    def encode(self, column: Column) -> pa.Array:
        rows = SubscriptionColumn.of(column)
        head = np.empty((len(rows), 2), np.uint8)
        head[:, 0] = np.where(rows.hashes.present, _VERSION, _VERSION | _NO_HASH)
        head[:, 1] = rows.instructions
        keys = large_binary(self.inner.encode(rows.inner))
        return join(
            from_fixed_width(head), _hash_bytes(rows.hashes), keys, from_fixed_width(_big_endian(rows.partitions))
        )

    def decode(self, data: pa.Array) -> Column:
        data = large_binary(data)
        body, offsets = parts(data)
        valid = np.asarray(data.is_valid())
        lengths = np.where(valid, np.diff(offsets), 0)
        starts = offsets[:-1]
        readable = lengths >= 2
        first, second = np.zeros(len(data), np.uint8), np.zeros(len(data), np.uint8)
        first[readable], second[readable] = body[starts[readable]], body[starts[readable] + 1]
        versions = first & 0x7F
        hashed = readable & (first < _NO_HASH)
        before = np.where(hashed, 2 + HASH_BYTES, 2)
        after = np.where(versions == _VERSION, _INT_BYTES, 0)
        if (valid & ((lengths < before + after) | (versions > _VERSION) | (second > 3))).any():
            return super().decode(data)  # raises, and names the row
        partitions = np.full(len(data), -1, np.int32)
        at = np.flatnonzero(valid & (after > 0))
        last = body[(starts + lengths)[at, None] - np.arange(_INT_BYTES, 0, -1)]
        partitions[at] = np.ascontiguousarray(last).view(">i4").reshape(-1)
        keys = self.inner.decode(cut(data, before, after))
        return SubscriptionColumn(_read_hashes(body, starts + 2, hashed), second, keys, partitions)


class ResponseSerde(BaseSerde):
    """Kafka's ``SubscriptionResponseWrapperSerde``.

    As in Kafka, a foreign value of no bytes, such as an empty string, arrives as null. That holds for undeclared types
    too, whose bytes begin with a tag, so that a join does not depend on whether its types are declared.
    """

    def __init__(self, inner: Serde[Any]) -> None:
        self.inner = inner
        self._empty = [inner.serialize(value) for value in ("", b"")] if isinstance(inner, AutoSerde) else []

    @property
    def name(self) -> str:
        return f"response<{self.inner.name}>"

    def serialize(self, value: SubscriptionResponse | None) -> bytes | None:
        if value is None:
            return None
        foreign = self.inner.serialize(value.foreign_value) if value.foreign_value is not None else None
        if foreign in self._empty:
            foreign = None
        return (bytes((_NO_HASH,)) if value.hash is None else b"\x00" + value.hash) + (foreign or b"")

    def deserialize(self, data: bytes | None) -> SubscriptionResponse | None:
        if data is None:
            return None
        start = 1 if data[:1] >= b"\x80" else 1 + HASH_BYTES
        if len(data) < start or data[0] & 0x7F:
            self.reject(data, "a response of version 0")
        foreign = self.inner.deserialize(data[start:]) if len(data) > start else None
        return SubscriptionResponse(data[1:start] or None, foreign)

    def encode(self, column: Column) -> pa.Array:
        rows = ResponseColumn.of(column)
        head = np.where(rows.hashes.present, 0, _NO_HASH).astype(np.uint8).reshape(-1, 1)
        values = large_binary(self.inner.encode(rows.inner)).fill_null(b"")
        if self._empty:
            empty = pc.is_in(values, pa.array(self._empty, LARGE_BINARY))
            values = pc.if_else(empty, pa.scalar(b"", LARGE_BINARY), values)
        return join(from_fixed_width(head), _hash_bytes(rows.hashes), values)

    def decode(self, data: pa.Array) -> Column:
        data = large_binary(data)
        if data.null_count:
            return super().decode(data)
        body, offsets = parts(data)
        lengths, starts = np.diff(offsets), offsets[:-1]
        first = np.full(len(data), 0x7F, np.uint8)
        first[lengths > 0] = body[starts[lengths > 0]]
        hashed = first < _NO_HASH
        before = np.where(hashed, 1 + HASH_BYTES, 1)
        if ((lengths < before) | (first & 0x7F > 0)).any():
            return super().decode(data)  # raises, and names the row
        values = cut(data, before, np.zeros(len(data), np.int64))
        if (lengths == before).any():  # as in Kafka, a value of no bytes is null
            values = pc.if_else(pa.array(lengths > before), values, pa.scalar(None, LARGE_BINARY))
        hashes = _read_hashes(body, starts + 1, hashed)
        return ResponseColumn(hashes, self.inner.decode(values), np.full(len(data), -1, np.int32))


def foreign_prefixes(foreign: pa.Array) -> pa.Array:
    """Return the prefix of each foreign key's combined keys; no row is null."""
    foreign = large_binary(foreign)
    return join(from_fixed_width(_big_endian(np.diff(parts(foreign)[1]))), foreign)


def combined_keys(foreign: pa.Array, primary: pa.Array) -> pa.Array:
    """Return the keys of the subscription store: foreign key and primary key, row by row; no row is null."""
    return join(foreign_prefixes(foreign), large_binary(primary))


def primary_keys(combined: pa.Array) -> pa.Array:
    """Return the primary keys' bytes in keys of the subscription store."""
    body, offsets = parts(combined)
    lengths = np.ascontiguousarray(body[offsets[:-1, None] + np.arange(_INT_BYTES)]).view(">i4").reshape(-1)
    return cut(combined, lengths.astype(np.int64) + _INT_BYTES, np.zeros(len(combined), np.int64))
