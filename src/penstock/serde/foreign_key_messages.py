"""Messages between the two sides of a foreign-key join, their bytes, and the hash by which a changed value is seen.

Subscription: version and, in its highest bit, whether there is no hash; instruction; hash (16 bytes, may be missing);
primary key; from version 1 on the partition of the primary key (4 bytes).
Response: version 0 and the same bit; hash (may be missing); the foreign value, no bytes at all for null.
Combined key: length of the foreign key (4 bytes), foreign key, primary key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SerializationError
from penstock.serde.base import BaseSerde, Serde
from penstock.serde.column import LARGE_BINARY, Column, cut, from_fixed_width, join, large_binary, parts
from penstock.serde.self_describing import AutoSerde

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Hashes",
    "Instruction",
    "ResponseColumn",
    "ResponseSerde",
    "Subscription",
    "SubscriptionColumn",
    "SubscriptionResponse",
    "SubscriptionSerde",
    "combined_keys",
    "foreign_prefixes",
    "hash128",
    "hash128_many",
    "primary_keys",
]

HASH_BYTES = 16
_SEED = 104729


def hash128(data: bytes) -> bytes:
    """Return Java's ``Murmur3.hash128``: both longs, big-endian.

    >>> hash128(b"kafka").hex()
    'c1ba8801115a620ca8402311f6596740'
    """
    return _digest_bytes(mmh3.mmh3_x64_128_digest(data, _SEED)).tobytes()


def hash128_many(values: pa.Array) -> NDArray[np.uint8]:
    """Return `hash128` of every row, one row of 16 bytes each; the hash of null rows is undefined."""
    digest = mmh3.mmh3_x64_128_digest
    hashes = [digest(value or b"", _SEED) for value in values.to_pylist()]
    return _digest_bytes(b"".join(hashes)).reshape(-1, HASH_BYTES)


def _digest_bytes(digests: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(digests, "<u8").astype(">u8").view(np.uint8)


class Instruction(IntEnum):
    """The right side's task with a subscription; Kafka's ``SubscriptionWrapper.Instruction``."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


class Subscription(NamedTuple):
    """Kafka's ``SubscriptionWrapper``: a left row's interest in a foreign key.

    ``hash`` is that of the left value (None: it is null), ``partition`` the one of the answer (-1: unknown).
    """

    hash: bytes | None
    instruction: int
    primary_key: Any
    partition: int = -1


class SubscriptionResponse(NamedTuple):
    """Kafka's ``SubscriptionResponseWrapper``; ``partition`` is its destination and is not written."""

    hash: bytes | None
    foreign_value: Any
    partition: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Hashes:
    """Hashes of 16 bytes, one a row; where ``present`` is false there is none, and the bytes are zeros."""

    data: NDArray[np.uint8]
    present: NDArray[np.bool_]

    @classmethod
    def of_values(cls, encoded: pa.Array) -> Hashes:
        """Return the hashes of a column of bytes; null rows have none."""
        present = np.asarray(encoded.is_valid())
        data = hash128_many(encoded)
        data[~present] = 0
        return cls(data, present)

    @classmethod
    def of_items(cls, items: Sequence[bytes | None]) -> Hashes:
        present = np.array([item is not None for item in items], np.bool_)
        joined = b"".join(bytes(HASH_BYTES) if item is None else item for item in items)
        return cls(np.frombuffer(joined, np.uint8).reshape(-1, HASH_BYTES), present)

    def items(self) -> list[bytes | None]:
        return [row.tobytes() if there else None for row, there in zip(self.data, self.present.tolist(), strict=True)]

    def take(self, index: NDArray[np.int64]) -> Hashes:
        return Hashes(self.data[index], self.present[index])

    def equal(self, other: Hashes) -> NDArray[np.bool_]:
        """Compare row by row; two that are absent are equal."""
        same: NDArray[np.bool_] = (self.present == other.present) & (self.data == other.data).all(axis=1)
        return same

    @staticmethod
    def concat(parts: Sequence[Hashes]) -> Hashes:
        return Hashes(np.concatenate([p.data for p in parts]), np.concatenate([p.present for p in parts]))


class _Wrapped(Column):
    """A column of wrappers as columns of their fields; ``series()`` is not for them."""

    __slots__ = ("hashes", "inner", "partitions")

    def __init__(self, hashes: Hashes, inner: Column, partitions: NDArray[np.int32]) -> None:
        super().__init__(None, None)
        self.hashes = hashes
        self.inner = inner
        self.partitions = partitions

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def is_columnar(self) -> bool:
        return False


class SubscriptionColumn(_Wrapped):
    """A column of `Subscription`; ``inner`` has the primary keys. A row whose primary key is null is null."""

    __slots__ = ("instructions",)

    def __init__(
        self, hashes: Hashes, instructions: NDArray[np.uint8], inner: Column, partitions: NDArray[np.int32]
    ) -> None:
        super().__init__(hashes, inner, partitions)
        self.instructions = instructions

    @classmethod
    def of(cls, column: Column) -> Self:
        """Return the column itself, or made of its items."""
        if isinstance(column, cls):
            return column
        rows = [_NO_SUBSCRIPTION if item is None else item for item in column.items()]
        return cls(
            Hashes.of_items([row.hash for row in rows]),
            np.array([row.instruction for row in rows], np.uint8),
            Column.of_items([row.primary_key for row in rows]),
            np.array([row.partition for row in rows], np.int32),
        )

    def items(self) -> list[Any]:
        if self._items is None:
            fields = (self.hashes.items(), self.instructions.tolist(), self.inner.items(), self.partitions.tolist())
            self._items = [
                None if key is None else Subscription(hashed, instruction, key, partition)
                for hashed, instruction, key, partition in zip(*fields, strict=True)
            ]
        return self._items

    def null_mask(self) -> NDArray[np.bool_]:
        return self.inner.null_mask()

    def take(self, index: NDArray[np.int64]) -> SubscriptionColumn:
        return SubscriptionColumn(
            self.hashes.take(index), self.instructions[index], self.inner.take(index), self.partitions[index]
        )

    def concat_same(self, columns: Sequence[Column]) -> SubscriptionColumn:
        parts = [SubscriptionColumn.of(column) for column in columns]
        return SubscriptionColumn(
            Hashes.concat([p.hashes for p in parts]),
            np.concatenate([p.instructions for p in parts]),
            Column.concat([p.inner for p in parts]),
            np.concatenate([p.partitions for p in parts]),
        )


class ResponseColumn(_Wrapped):
    """A column of `SubscriptionResponse`; ``inner`` has the foreign values. No row is null."""

    __slots__ = ()

    @classmethod
    def of(cls, column: Column) -> Self:
        """Return the column itself, or made of its items."""
        if isinstance(column, cls):
            return column
        rows = column.items()
        return cls(
            Hashes.of_items([row.hash for row in rows]),
            Column.of_items([row.foreign_value for row in rows]),
            np.array([row.partition for row in rows], np.int32),
        )

    def items(self) -> list[Any]:
        if self._items is None:
            rows = zip(self.hashes.items(), self.inner.items(), self.partitions.tolist(), strict=True)
            self._items = [SubscriptionResponse(*row) for row in rows]
        return self._items

    def null_mask(self) -> NDArray[np.bool_]:
        return np.zeros(len(self), np.bool_)

    def take(self, index: NDArray[np.int64]) -> ResponseColumn:
        return ResponseColumn(self.hashes.take(index), self.inner.take(index), self.partitions[index])

    def concat_same(self, columns: Sequence[Column]) -> ResponseColumn:
        parts = [ResponseColumn.of(column) for column in columns]
        return ResponseColumn(
            Hashes.concat([p.hashes for p in parts]),
            Column.concat([p.inner for p in parts]),
            np.concatenate([p.partitions for p in parts]),
        )


_NO_SUBSCRIPTION = Subscription(None, 0, None)


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
