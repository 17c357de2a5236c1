"""Strings, raw bytes, UUIDs and null."""

from __future__ import annotations

import uuid
from typing import Any

import polars as pl
import pyarrow as pa

from penstock.serde.buffers import bytes_column, large_binary, series_of
from penstock.serde.column import Column
from penstock.serde.rowwise import BaseSerde

__all__ = ["BytesSerde", "StringSerde", "UuidSerde", "VoidSerde"]

NoneType = type(None)
_FEW = 24  # values that are converted one by one: work by column takes longer to begin


class StringSerde(BaseSerde):
    """UTF-8. Unlike Java's, bytes that are not UTF-8 are an error, unless they are to be replaced as there.

    Args:
        replaces: Whether bytes that are not UTF-8 become the replacement character.
    """

    def __init__(self, *, replaces: bool = False) -> None:
        self._replaces = replaces

    @property
    def name(self) -> str:
        return "string<replace>" if self._replaces else "string"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            self.refuse(value, "str")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            self.refuse(value, "text without lone surrogates", error)

    def deserialize(self, data: bytes | None) -> str | None:
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            if self._replaces:
                return data.decode(errors="replace")
            self.reject(data, "UTF-8 text", error)

    def encode(self, column: Column) -> pa.Array:
        if column.is_columnar:
            series = column.series()
            if series.dtype in (pl.Categorical, pl.Enum, pl.Null):
                series = series.cast(pl.String)
            if series.dtype == pl.String:
                return large_binary(series.to_arrow())
        elif set(map(type, column.items())) <= {str, NoneType}:
            try:
                if len(column) <= _FEW:
                    encoded = [None if item is None else item.encode() for item in column.items()]
                    return pa.array(encoded, pa.large_binary())
                return pa.array(column.items(), pa.large_string()).cast(pa.large_binary())
            except (UnicodeEncodeError, pa.ArrowInvalid):
                pass  # the loop over the rows below finds the bad one
        return super().encode(column)

    def decode(self, data: pa.Array) -> Column:
        if len(data) <= _FEW:
            return self.decode_rows(large_binary(data).to_pylist())
        try:
            return Column.of_series(series_of(large_binary(data).cast(pa.large_string())))
        except pa.ArrowInvalid:
            return super().decode(data)

    def decode_rows(self, rows: list[bytes | None]) -> Column:
        return Column.of_items(self.deserialize_rows(rows), pl.String)


class BytesSerde(BaseSerde):
    """The bytes as they are."""

    @property
    def name(self) -> str:
        return "bytes"

    def serialize(self, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if not isinstance(value, bytearray | memoryview | bytes):
            self.refuse(value, "bytes")
        return bytes(value)

    def deserialize(self, data: bytes | None) -> bytes | None:
        return data

    def encode(self, column: Column) -> pa.Array:
        if column.is_columnar and column.series().dtype in (pl.Binary, pl.Null):
            return large_binary(column.series().to_arrow())
        return super().encode(column)

    def decode(self, data: pa.Array) -> Column:
        if len(data) <= _FEW:
            return self.decode_rows(large_binary(data).to_pylist())
        return Column.of_series(series_of(large_binary(data)))

    def decode_rows(self, rows: list[bytes | None]) -> Column:
        return Column.of_items(rows, pl.Binary)


class UuidSerde(BaseSerde):
    """A UUID as its text of 36 characters, as Kafka writes it."""

    width = 36

    @property
    def name(self) -> str:
        return "uuid"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, uuid.UUID):
            self.refuse(value, "uuid.UUID")
        return str(value).encode()

    def deserialize(self, data: bytes | None) -> uuid.UUID | None:
        if data is None:
            return None
        try:
            return uuid.UUID(data.decode("ascii"))
        except ValueError as error:
            self.reject(data, "the text of a UUID", error)


class VoidSerde(BaseSerde):
    """Null only."""

    @property
    def name(self) -> str:
        return "void"

    def serialize(self, value: Any) -> bytes | None:
        if value is not None:
            self.refuse(value, "only None")
        return None

    def deserialize(self, data: bytes | None) -> None:
        if data is not None:
            self.reject(data, "only null")

    def decode(self, data: pa.Array) -> Column:
        if len(data) == data.null_count:
            return Column.of_series(pl.Series("", [None] * len(data), pl.Null))
        return super().decode(data)

    def encode(self, column: Column) -> pa.Array:
        return bytes_column([None] * len(column)) if column.null_mask().all() else super().encode(column)
