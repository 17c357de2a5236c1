"""Messages between the two sides of a foreign-key join, one at a time and by the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from penstock.serde.column import Column
from penstock.serde.murmur3 import HASH_BYTES, hash128_many

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Hashes", "Instruction", "SubscriptionResponse", "ResponseColumn", "Subscription", "SubscriptionColumn"]


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
