"""Self-describing values, for internal topics and stores whose types are not declared.

One byte of tag, then the value; inside lists and dicts a length goes before values without a fixed width.
No pickle: bytes from a topic must never run code.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from penstock.base.late_polars import pl
from penstock.serde.base import BaseSerde
from penstock.serde.column import Column, fixed_width, from_fixed_width, join, large_binary, series_of
from penstock.serde.json_serde import json_text
from penstock.serde.windowed import Window, Windowed

__all__ = ["AutoSerde"]

_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")
_MICROSECOND = timedelta(microseconds=1)
_MOST_DEPTH = 100  # of nested containers: each takes a few of Python's own levels to write and to read
_CONSTANTS: dict[bytes, Any] = {b"n": None, b"t": True, b"f": False}
_READERS: dict[bytes, Callable[[bytes], Any]] = {
    b"s": lambda body: body.decode(),
    b"b": lambda body: body,
    b"i": lambda body: _LONG.unpack(body)[0],
    b"I": lambda body: int.from_bytes(body, "big", signed=True),
    b"d": lambda body: _DOUBLE.unpack(body)[0],
    b"j": json.loads,
    b"U": lambda body: UUID(bytes=body),
    b"N": lambda body: Decimal(body.decode()),
    b"T": lambda body: datetime.fromisoformat(body.decode()),
    b"D": lambda body: date.fromisoformat(body.decode()),
    b"P": lambda body: int.from_bytes(body, "big", signed=True) * _MICROSECOND,
}
_CONTAINERS: dict[bytes, Callable[[list[Any]], Any]] = {
    b"l": list,
    b"u": tuple,
    b"e": set,
    b"E": frozenset,
    b"m": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
    b"w": lambda items: _windowed(*items),
}
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_JSON_SCALARS = {str, int, bool, type(None)}


class AutoSerde(BaseSerde):
    """Python's own types (numbers, text, bytes, containers, dates, Decimal, UUID) and `Windowed`."""

    @property
    def name(self) -> str:
        return "auto"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return _write(value)
        except (TypeError, ValueError, RecursionError) as error:
            self.refuse(value, f"plain Python values ({error})", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return _read(data)
        except (KeyError, ValueError, TypeError, IndexError, struct.error, ArithmeticError, RecursionError) as error:
            self.reject(data, "values that it has written itself", error)

    def encode(self, column: Column) -> pa.Array:
        if column.is_columnar and not column.is_padded:
            encoded = _encode_series(column.series())
            return super().encode(column) if encoded is None else encoded
        kinds = set(map(type, column.items())) - {type(None)}
        if kinds == {str}:
            try:
                return join(b"s", pa.array(column.items(), pa.large_string()))
            except (UnicodeEncodeError, pa.ArrowInvalid):
                return super().encode(column)
        if kinds == {int}:
            try:
                return _encode_numbers(pl.Series("", column.items(), pl.Int64))
            except (OverflowError, TypeError, pl.exceptions.PolarsError):
                return super().encode(column)
        return super().encode(column)

    def decode(self, data: pa.Array) -> Column:
        data = large_binary(data)
        rows = series_of(data)
        tags = rows.bin.slice(0, 1).drop_nulls().unique().to_list()
        if tags == [b"s"]:
            try:
                text = large_binary(rows.bin.slice(1).to_arrow()).cast(pa.large_string())
                return Column.of_series(series_of(text))
            except pa.ArrowInvalid:
                return super().decode(data)
        if tags in ([b"i"], [b"d"]):
            matrix, valid, _ = fixed_width(data, 9)
            if matrix is not None:
                kind = ">i8" if tags == [b"i"] else ">f8"
                values = np.ascontiguousarray(matrix[:, 1:]).view(kind).ravel()
                spread = np.zeros(len(data), kind[1:])
                spread[slice(None) if valid is None else valid] = values
                return Column.of_series(series_of(pa.array(spread, mask=None if valid is None else ~valid)))
        return super().decode(data)


def _encode_series(series: pl.Series) -> pa.Array | None:
    if series.dtype == pl.Null:
        return pa.nulls(len(series), pa.large_binary())
    if series.dtype in (pl.String, pl.Binary):
        return join(b"s" if series.dtype == pl.String else b"b", large_binary(series.to_arrow()))
    if (series.dtype.is_integer() and series.dtype not in (pl.UInt64, pl.Int128)) or series.dtype == pl.Float64:
        return _encode_numbers(series)
    if isinstance(series.dtype, pl.Struct) and all(
        field.dtype in (pl.String, pl.Boolean) or field.dtype.is_integer() for field in series.dtype.fields
    ):
        texts = json_text(series)
        return None if texts is None else join(b"j", texts)
    return None


def _encode_numbers(series: pl.Series) -> pa.Array:
    """Return the tag and eight bytes of each number."""
    tag, wide = (b"d", ">f8") if series.dtype == pl.Float64 else (b"i", ">i8")
    valid = series.is_not_null().to_numpy() if series.null_count() else None
    values = series.drop_nulls().to_numpy().astype(wide).view(np.uint8).reshape(-1, 8)
    matrix = np.empty((len(values), 9), np.uint8)
    matrix[:, 0] = tag[0]
    matrix[:, 1:] = values
    return from_fixed_width(matrix, valid)


def _write(value: Any, depth: int = 0) -> bytes:
    kind = type(value)
    if kind is str:
        return b"".join((b"s", value.encode()))
    if kind is bool:
        return b"t" if value else b"f"
    if kind is int:
        if -(1 << 63) <= value < 1 << 63:
            return b"i" + _LONG.pack(value)
        return b"".join((b"I", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)))
    if kind is float:
        return b"d" + _DOUBLE.pack(value)
    if kind is dict:
        if all(type(k) is str for k in value) and set(map(type, value.values())) <= _JSON_SCALARS:
            return b"j" + _JSON(value).encode()
        return b"m" + _pack([item for pair in value.items() for item in pair], depth)
    return _write_rare(value, depth)


def _write_rare(value: Any, depth: int) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, bytes | bytearray | memoryview):
        raw: bytes = bytes(value)
        return b"b" + raw
    if isinstance(value, list):
        return b"l" + _pack(value, depth)
    if type(value) is tuple:
        return b"u" + _pack(value, depth)
    if isinstance(value, set | frozenset):  # sorted: equal sets must have equal bytes, they may be keys
        tag = b"E" if isinstance(value, frozenset) else b"e"
        return tag + b"".join(sorted(_pieces(value, depth)))
    if isinstance(value, datetime):
        return b"T" + value.isoformat().encode()
    if isinstance(value, date):
        return b"D" + value.isoformat().encode()
    if isinstance(value, timedelta):
        microseconds = value // _MICROSECOND
        return b"P" + microseconds.to_bytes(microseconds.bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, Decimal):
        return b"N" + str(value).encode()
    if isinstance(value, UUID):
        return b"U" + value.bytes
    if isinstance(value, Windowed):
        return b"w" + _pack([value.key, value.window.start, value.window.end], depth)
    if isinstance(value, np.generic):
        return _write(value.item(), depth)
    raise TypeError(f"{type(value).__name__} is not one of them")


def _read(data: bytes, depth: int = 0) -> Any:
    tag = data[:1]
    if tag in _CONSTANTS:
        if len(data) > 1:
            raise ValueError("bytes after the value")
        return _CONSTANTS[tag]
    make = _CONTAINERS.get(tag)
    return _READERS[tag](data[1:]) if make is None else make(_unpack(data[1:], _deeper(depth)))


def _deeper(depth: int) -> int:
    if depth >= _MOST_DEPTH:
        raise ValueError(f"more than {_MOST_DEPTH} nested containers")
    return depth + 1


def _pack(items: Iterable[Any], depth: int) -> bytes:
    return b"".join(_pieces(items, depth))


def _pieces(items: Iterable[Any], depth: int) -> list[bytes]:
    inside = _deeper(depth)
    return [_sized(_write(item, inside)) for item in items]


def _sized(piece: bytes) -> bytes:
    """Return the piece after its length: one byte below 255, else 255 and four bytes."""
    size = len(piece)
    return (bytes((size,)) if size < 255 else b"\xff" + size.to_bytes(4, "big")) + piece


def _unpack(body: bytes, depth: int) -> list[Any]:
    items, position = [], 0
    while position < len(body):
        size = body[position]
        position += 1
        if size == 255:
            size = int.from_bytes(body[position : position + 4], "big")
            position += 4
        if position + size > len(body):
            raise ValueError("cut short")
        items.append(_read(body[position : position + size], depth))
        position += size
    return items


def _windowed(key: Any, start: int, end: int) -> Windowed[Any]:
    return Windowed(key, Window(start, end))
