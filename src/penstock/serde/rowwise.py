"""What all serdes share: identity by name, column methods that go row by row, errors that name the row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa

from penstock.errors import SerializationError
from penstock.serde.buffers import bytes_column, large_binary
from penstock.serde.column import Column

__all__ = ["BaseSerde", "show"]


def show(value: object) -> str:
    """A value for an error's text, cut short."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class BaseSerde(ABC):
    """The row-by-row serde: subclasses give ``serialize`` and ``deserialize`` and override what can be vectorised.

    Two serdes are equal if their classes and their names with parameters are.
    """

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def serialize(self, value: Any) -> bytes | None: ...

    @abstractmethod
    def deserialize(self, data: bytes | None) -> Any: ...

    def encode(self, column: Column) -> pa.Array:
        return bytes_column(self.serialize_rows(column.items()))

    def decode(self, data: pa.Array) -> Column:
        return Column.of_items(self.deserialize_rows(large_binary(data).to_pylist()))

    def serialize_rows(self, items: Sequence[Any]) -> list[bytes | None]:
        """Row by row; the error of a bad row carries its number as ``row``."""
        rows: list[bytes | None] = []
        serialize = self.serialize
        try:
            for item in items:
                rows.append(serialize(item))  # noqa: PERF401 - its length says which row failed
        except SerializationError as error:
            raise self.at_row(error, len(rows)) from error
        return rows

    def deserialize_rows(self, rows: Sequence[bytes | None]) -> list[Any]:
        """Row by row; the error of a bad row carries its number as ``row``."""
        items: list[Any] = []
        deserialize = self.deserialize
        try:
            for row in rows:
                items.append(deserialize(row))  # noqa: PERF401 - its length says which row failed
        except SerializationError as error:
            raise self.at_row(error, len(items)) from error
        return items

    def at_row(self, error: SerializationError, row: int) -> SerializationError:
        return SerializationError(f"row {row}: {error.message}", hint=error.hint, **{**error.facts, "row": row})

    def refuse(self, value: object, wanted: str, cause: BaseException | None = None) -> NoReturn:
        """Raises for a value that this serde cannot write."""
        raise SerializationError(
            f"the {self.name} serde writes {wanted}, not {type(value).__name__} {show(value)}",
            hint="Give the operator a serde that fits its values (Consumed, Grouped, Produced, Materialized).",
            serde=self.name,
        ) from cause

    def reject(self, data: bytes, wanted: str, cause: BaseException | None = None) -> NoReturn:
        """Raises for bytes that this serde cannot read."""
        raise SerializationError(
            f"the {self.name} serde reads {wanted}, not {len(data)} bytes {show(data)}",
            hint="Give the topic the serde it was written with, or set deserialization.exception.handler.",
            serde=self.name,
        ) from cause

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, BaseSerde) and self.name == other.name

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __repr__(self) -> str:
        return f"<serde {self.name}>"
