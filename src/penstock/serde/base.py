"""The interface of serdes: bytes to values and back, one at a time and by the column."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from penstock.serde.column import Column

__all__ = ["Serde"]

T = TypeVar("T")


@runtime_checkable
class Serde(Protocol[T]):
    """Kafka's ``Serde``: null stays null in both directions.

    The column methods must return the results of the single ones, row by row; ``decode`` and ``encode`` raise
    SerializationError if any row fails, and the caller then goes row by row to find it.
    Bytes columns are Arrow ``large_binary``. Equal serdes compare and hash equal, and all of them pickle.
    """

    @property
    def name(self) -> str:
        """A stable name with parameters, e.g. ``string``, ``list<long>``, ``windowed<string>``."""
        ...

    def serialize(self, value: T | None) -> bytes | None:
        """Encode one value."""
        ...

    def deserialize(self, data: bytes | None) -> T | None:
        """Decode the bytes of one value."""
        ...

    def encode(self, column: Column) -> pa.Array:
        """Encode a column of values to ``large_binary``."""
        ...

    def decode(self, data: pa.Array) -> Column:
        """Decode a column of bytes to values."""
        ...
