"""Serdes of windowed keys: the key's bytes, then the window's times as longs of eight bytes."""

from __future__ import annotations

import struct
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import SerializationError
from penstock.serde.base import Serde
from penstock.serde.buffers import bytes_column, from_fixed_width, join, large_binary, parts, without_suffix
from penstock.serde.column import Column
from penstock.serde.rowwise import FEW, BaseSerde, decode_rows, encode_rows
from penstock.serde.windowed import Window, Windowed, WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SessionWindowedSerde", "TimeWindowedSerde"]

_LONG_MAX = (1 << 63) - 1
_ONE = struct.Struct(">q")
_TWO = struct.Struct(">qq")


class _WindowedSerde(BaseSerde):
    """Splits and joins columns; subclasses define the times that follow the key."""

    _suffix_bytes: int

    def __init__(self, inner: Serde[Any]) -> None:
        self.inner = inner
        self.few_by_row = getattr(inner, "few_by_row", False)

    def encode_keys(self, column: Column) -> pa.Array:
        """Return the bytes of the plain keys: Kafka chooses the partition of a windowed key by these."""
        return self.inner.encode(WindowedColumn.of(column).keys)

    def encode(self, column: Column) -> pa.Array:
        if type(column) is Column and any(isinstance(one, Windowed) and one.key is None for one in column.items()):
            return super().encode(column)  # raises, and names the row; in a WindowedColumn such a row is null
        windowed = WindowedColumn.of(column)
        if len(windowed) <= FEW:
            return bytes_column(self._few_rows(windowed))
        keys = large_binary(self.inner.encode(windowed.keys))
        return join(keys, from_fixed_width(self._times(windowed)))

    def _few_rows(self, windowed: WindowedColumn) -> list[bytes | None]:
        rows = zip(encode_rows(self.inner, windowed.keys), self._times(windowed), strict=True)
        return [None if key is None else key + times.tobytes() for key, times in rows]

    def decode(self, data: pa.Array) -> Column:
        data = large_binary(data)
        if len(data) <= FEW:
            return self.decode_rows(data.to_pylist())
        body, offsets = parts(data)
        valid = np.asarray(data.is_valid())
        lengths = np.where(valid, np.diff(offsets), self._suffix_bytes)
        if len(lengths) and lengths.min() < self._suffix_bytes:
            return super().decode(data)  # raises, and names the row
        if not valid.any():
            return Column.nulls(len(data))
        ends = offsets[1:] - self._suffix_bytes
        at = np.where(valid, ends, 0)[:, None] + np.arange(self._suffix_bytes)
        suffix = body[at] if valid.all() else np.where(valid[:, None], body[np.minimum(at, max(len(body) - 1, 0))], 0)
        times: NDArray[np.int64] = (
            np.ascontiguousarray(suffix).view(">i8").astype(np.int64).reshape(len(data), self._suffix_bytes // 8)
        )
        if _are_wrong(times):
            return super().decode(data)  # raises, and names the row
        return self._column(self.inner.decode(without_suffix(data, self._suffix_bytes)), times)

    def decode_rows(self, rows: list[bytes | None]) -> Column:
        width = self._suffix_bytes
        if all(row is None for row in rows):
            return Column.nulls(len(rows))
        if any(row is not None and len(row) < width for row in rows):
            return Column.of_items(self.deserialize_rows(rows))  # raises, and names the row
        suffixes = b"".join([bytes(width) if row is None else row[-width:] for row in rows])
        times = np.frombuffer(suffixes, ">i8").astype(np.int64).reshape(len(rows), width // 8)
        if _are_wrong(times):
            return Column.of_items(self.deserialize_rows(rows))  # raises, and names the row
        return self._column(decode_rows(self.inner, [None if row is None else row[:-width] for row in rows]), times)

    @abstractmethod
    def _times(self, windowed: WindowedColumn) -> Any: ...

    @abstractmethod
    def _column(self, keys: Column, times: Any) -> WindowedColumn: ...

    def _windowed(self, value: object) -> Windowed[Any]:
        if not isinstance(value, Windowed):
            self.refuse(value, "Windowed keys")
        return value

    def _key_bytes(self, value: Windowed[Any]) -> bytes:
        key = self.inner.serialize(value.key)
        if key is None:
            raise SerializationError("a windowed key needs a key that is not null", serde=self.name)
        return key


def _are_wrong(times: NDArray[np.int64]) -> bool:
    return bool((times[:, -1] < 0).any() or (times[:, 0] < times[:, -1]).any())  # the start is the last of them


class TimeWindowedSerde(_WindowedSerde):
    """Kafka's ``TimeWindowedSerializer``: key and start; the size is not written, so the serde needs it."""

    _suffix_bytes = 8

    def __init__(self, inner: Serde[Any], size_ms: int = _LONG_MAX) -> None:
        super().__init__(inner)
        self.size_ms = size_ms

    @property
    def name(self) -> str:
        size = "" if self.size_ms == _LONG_MAX else f",{self.size_ms}"
        return f"windowed<{self.inner.name}{size}>"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        windowed = self._windowed(value)
        return self._key_bytes(windowed) + _ONE.pack(windowed.window.start)

    def deserialize(self, data: bytes | None) -> Windowed[Any] | None:
        if data is None:
            return None
        if len(data) < self._suffix_bytes:
            self.reject(data, "a key and 8 bytes of window start")
        start = _ONE.unpack(data[-8:])[0]
        if start < 0:
            self.reject(data, "windows that start at 0 or later")
        return Windowed(self.inner.deserialize(data[:-8]), Window(start, min(start + self.size_ms, _LONG_MAX)))

    def _times(self, windowed: WindowedColumn) -> Any:
        return windowed.starts.astype(">i8").view(np.uint8).reshape(-1, 8)

    def _column(self, keys: Column, times: Any) -> WindowedColumn:
        starts = times[:, 0].copy()
        with np.errstate(over="ignore"):
            ends = np.where(starts > _LONG_MAX - self.size_ms, _LONG_MAX, starts + self.size_ms)
        return WindowedColumn(keys, starts, ends)


class SessionWindowedSerde(_WindowedSerde):
    """Kafka's ``SessionWindowedSerializer``: key, end, start."""

    _suffix_bytes = 16

    @property
    def name(self) -> str:
        return f"session<{self.inner.name}>"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        windowed = self._windowed(value)
        return self._key_bytes(windowed) + _TWO.pack(windowed.window.end, windowed.window.start)

    def deserialize(self, data: bytes | None) -> Windowed[Any] | None:
        if data is None:
            return None
        if len(data) < self._suffix_bytes:
            self.reject(data, "a key and 16 bytes of window end and start")
        end, start = _TWO.unpack(data[-16:])
        if not 0 <= start <= end:
            self.reject(data, "windows that start at 0 or later and end after that")
        return Windowed(self.inner.deserialize(data[:-16]), Window(start, end))

    def _times(self, windowed: WindowedColumn) -> Any:
        times = np.stack([windowed.ends, windowed.starts], axis=1)
        return times.astype(">i8").view(np.uint8).reshape(-1, 16)

    def _column(self, keys: Column, times: Any) -> WindowedColumn:
        return WindowedColumn(keys, times[:, 1].copy(), times[:, 0].copy())
