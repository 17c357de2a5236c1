"""Strings, bytes, UUIDs and null, numbers and booleans as Kafka writes them, and lists of them.

Kafka's ListSerde writes a list of values of one type as

0, number of nulls, their positions, number of values, the values that are not null   (values of fixed width)
1, number of values, then for each its length (-1: null) and its bytes                (all others)
"""

from __future__ import annotations

import re
import struct
import uuid
from functools import cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.late_polars import pl
from penstock.errors import SerializationError
from penstock.serde.base import BaseSerde, Serde
from penstock.serde.bound_serdes import HeadersSerde
from penstock.serde.column import Column, bytes_column, fixed_width, from_fixed_width, large_binary, series_of

__all__ = [
    "BooleanSerde",
    "BytesSerde",
    "ListSerde",
    "NumberSerde",
    "StringSerde",
    "TextLongSerde",
    "UuidSerde",
    "VoidSerde",
]

NoneType = type(None)
_FEW_TEXTS = 24  # values that are converted one by one: work by column takes longer to begin


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
                if len(column) <= _FEW_TEXTS:
                    encoded = [None if item is None else item.encode() for item in column.items()]
                    return pa.array(encoded, pa.large_binary())
                return pa.array(column.items(), pa.large_string()).cast(pa.large_binary())
            except (UnicodeEncodeError, pa.ArrowInvalid):
                pass  # the loop over the rows below finds the bad one
        return super().encode(column)

    def decode(self, data: pa.Array) -> Column:
        if len(data) <= _FEW_TEXTS:
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
        if len(data) <= _FEW_TEXTS:
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


@cache
def _fit_a_long() -> tuple[Any, ...]:
    return pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32


_FEW_NUMBERS = 64  # values; for more, setting up columns pays
# name -> struct code, numpy big-endian type, name of the Polars type
_KINDS = {
    "short": (">h", ">i2", "Int16"),
    "integer": (">i", ">i4", "Int32"),
    "long": (">q", ">i8", "Int64"),
    "float": (">f", ">f4", "Float32"),
    "double": (">d", ">f8", "Float64"),
}


class NumberSerde(BaseSerde):
    """Kafka's Short, Integer, Long, Float and Double serdes; a double takes integers too, a long takes no floats."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        code, big_endian, self._type_name = _KINDS[kind]
        self._struct = struct.Struct(code)
        self._big_endian = np.dtype(big_endian)
        self._floats = kind in {"float", "double"}

    def __reduce__(self) -> tuple[Any, ...]:
        return NumberSerde, (self._kind,)

    @property
    def name(self) -> str:
        return self._kind

    @property
    def width(self) -> int:
        return self._struct.size

    @property
    def _dtype(self) -> Any:
        return getattr(pl, self._type_name)

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, bool | np.bool_):
            self.refuse(value, f"{self._kind} numbers")
        try:
            return self._struct.pack(value)
        except (struct.error, OverflowError, TypeError) as error:
            fits = int | float | np.number if self._floats else int | np.integer
            expected = f"{self._kind} numbers of {self.width} bytes"
            self.refuse(value, expected, error, wrong_type=not isinstance(value, fits))

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if len(data) != self.width:
            self.reject(data, f"exactly {self.width} bytes")
        return self._struct.unpack(data)[0]

    def encode(self, column: Column) -> pa.Array:
        if len(column) <= _FEW_NUMBERS and not column.is_columnar:
            return super().encode(column)
        series = self._series(column)
        if series is None:
            return super().encode(column)
        valid = None
        numbers = series.to_arrow()
        if numbers.null_count:
            valid = np.asarray(numbers.is_valid())
            numbers = numbers.drop_null()
        matrix = numbers.to_numpy().astype(self._big_endian).view(np.uint8).reshape(-1, self.width)
        return from_fixed_width(matrix, valid)

    def _series(self, column: Column) -> pl.Series | None:
        """Return the column as numbers of this type; None if only a loop over the rows can find the wrong one."""
        if column.is_columnar:
            series = column.series()
            kind = series.dtype
            fits = kind.is_integer() or kind == pl.Null or (self._floats and kind.is_float())
        else:
            kinds = set(map(type, column.items()))
            fits = kinds <= ({int, float, type(None)} if self._floats else {int, type(None)})
            series = pl.Series("", [], self._dtype)
        if not fits:
            return None
        try:
            if column.is_columnar:
                numbers = series if series.dtype == self._dtype else series.cast(self._dtype, strict=True)
            else:
                numbers = pl.Series("", column.items(), self._dtype, strict=not self._floats)
        except (pl.exceptions.PolarsError, OverflowError, TypeError, ValueError):
            return None
        if self._floats and not column.is_columnar and numbers.null_count() != column.items().count(None):
            return None  # an integer that is too large for a float has become null
        # A number that is too large for a float of 4 bytes has become infinity.
        return None if self._kind == "float" and numbers.is_infinite().any() else numbers

    def decode(self, data: pa.Array) -> Column:
        if len(data) <= _FEW_NUMBERS:
            return self.decode_rows(large_binary(data).to_pylist())
        matrix, valid, bad = fixed_width(data, self.width)
        if matrix is None:
            self._bad_row(data, bad)
        values = np.ascontiguousarray(matrix).view(self._big_endian).ravel().astype(self._big_endian.newbyteorder("="))
        if valid is None:
            return Column.of_series(pl.Series("", values))
        spread = np.zeros(len(valid), values.dtype)
        spread[valid] = values
        return Column.of_series(series_of(pa.array(spread, mask=~valid)))

    def decode_rows(self, rows: list[bytes | None]) -> Column:
        return Column.of_items(self.deserialize_rows(rows), self._dtype)

    def _bad_row(self, data: pa.Array, row: int) -> None:
        bad = cast("bytes", large_binary(data)[row].as_py())
        try:
            self.deserialize(bad)
        except SerializationError as error:
            raise self.at_row(error, row) from error


class BooleanSerde(BaseSerde):
    """One byte, 0 or 1."""

    @property
    def name(self) -> str:
        return "boolean"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, bool | np.bool_):
            self.refuse(value, "booleans")
        return b"\x01" if value else b"\x00"

    def deserialize(self, data: bytes | None) -> bool | None:
        if data is None:
            return None
        if data not in {b"\x00", b"\x01"}:
            self.reject(data, "one byte, 0 or 1")
        return data == b"\x01"

    def encode(self, column: Column) -> pa.Array:
        if not column.is_columnar or column.series().dtype != pl.Boolean:
            return super().encode(column)
        series = column.series()
        valid = series.is_not_null().to_numpy() if series.null_count() else None
        matrix = series.drop_nulls().cast(pl.UInt8).to_numpy().reshape(-1, 1)
        return from_fixed_width(matrix, valid)

    def decode(self, data: pa.Array) -> Column:
        matrix, valid, _ = fixed_width(data, 1)
        if matrix is None or (matrix > 1).any():
            return super().decode(data)
        if valid is None:
            return Column.of_series(pl.Series("", matrix.ravel().astype(np.bool_)))
        spread = np.zeros(len(valid), np.bool_)
        spread[valid] = matrix.ravel()
        return Column.of_series(series_of(pa.array(spread, mask=~valid)))


class TextLongSerde(BaseSerde):
    """A long as decimal text, for topics that other tools fill with plain numbers."""

    @property
    def name(self) -> str:
        return "text_long"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not -(1 << 63) <= value < 1 << 63:
            self.refuse(value, "integers of 64 bits")
        return b"%d" % value

    def deserialize(self, data: bytes | None) -> int | None:
        if data is None:
            return None
        if not re.fullmatch(rb"-?[0-9]{1,19}", data) or not -(1 << 63) <= int(data) < 1 << 63:
            self.reject(data, "an integer of 64 bits as decimal text")
        return int(data)

    def encode(self, column: Column) -> pa.Array:
        if not column.is_columnar or column.series().dtype not in _fit_a_long():
            return super().encode(column)
        return large_binary(column.series().cast(pl.String).to_arrow())

    def decode(self, data: pa.Array) -> Column:
        try:
            # By Arrow: Polars would run a query, which for a few rows takes longer than all else.
            texts = large_binary(data).cast(pa.large_string())
            if pc.all(pc.match_substring_regex(texts, r"\A-?[0-9]{1,19}\z"), min_count=0).as_py():
                return Column.of_series(series_of(texts.cast(pa.int64())))
        except pa.ArrowInvalid:
            pass  # the loop over the rows below finds the bad one
        return super().decode(data)


_INT = struct.Struct(">i")
_FIXED_HEAD = 9  # kind, number of nulls, number of values
_VARIABLE_HEAD = 5


class ListSerde(BaseSerde):
    """Kafka's ``ListSerde`` of an ``ArrayList``."""

    def __init__(self, inner: Serde[Any]) -> None:
        self.inner = inner.inside() if isinstance(inner, HeadersSerde) else inner
        self._width = inner.width if isinstance(inner, NumberSerde | UuidSerde) else 0

    @property
    def name(self) -> str:
        return f"list<{self.inner.name}>"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            self.refuse(value, "lists")
        rows = [self.inner.serialize(item) for item in value]
        if self._width:
            nulls = [i for i, row in enumerate(rows) if row is None]
            head = struct.pack(f">b{len(nulls) + 2}i", 0, len(nulls), *nulls, len(rows))
            return head + b"".join(row for row in rows if row is not None)
        out = [b"\x01", _INT.pack(len(rows))]
        for row in rows:
            out.extend((_INT.pack(-1),) if row is None else (_INT.pack(len(row)), row))
        return b"".join(out)

    def deserialize(self, data: bytes | None) -> list[Any] | None:
        if data is None:
            return None
        try:
            rows = (self._fixed if self._width and data[:1] == b"\0" else self._variable)(data)
        except (struct.error, ValueError) as error:
            self.reject(data, "a list in Kafka's format", error)
        return [self.inner.deserialize(row) for row in rows]

    def _fixed(self, data: bytes) -> list[bytes | None]:
        (null_count,) = _INT.unpack_from(data, 1)
        if not 0 <= 4 * null_count <= len(data) - _FIXED_HEAD:
            raise ValueError("a number of nulls that cannot be")
        nulls = set(struct.unpack_from(f">{null_count}i", data, 5))
        (count,) = _INT.unpack_from(data, 5 + 4 * null_count)
        position = _FIXED_HEAD + 4 * null_count
        if len(nulls) != null_count or (count - null_count) * self._width != len(data) - position:
            raise ValueError("a number of values that does not fill it")
        if nulls and not (min(nulls) >= 0 and max(nulls) < count):
            raise ValueError("nulls outside of the list")
        rows: list[bytes | None] = []
        for i in range(count):
            if i in nulls:
                rows.append(None)
            else:
                rows.append(data[position : position + self._width])
                position += self._width
        return rows

    def _variable(self, data: bytes) -> list[bytes | None]:
        (count,) = _INT.unpack_from(data, 1)
        if data[0] != 1 or not 0 <= 4 * count <= len(data) - _VARIABLE_HEAD:
            raise ValueError("a number of values that cannot be")
        position = _VARIABLE_HEAD
        rows: list[bytes | None] = []
        for _ in range(count):
            (length,) = _INT.unpack_from(data, position)
            position += 4
            if length < -1 or position + length > len(data):
                raise ValueError("a value that is longer than the list")
            rows.append(None if length < 0 else data[position : position + length])
            position += max(length, 0)
        if position != len(data):
            raise ValueError("bytes after the list")
        return rows
