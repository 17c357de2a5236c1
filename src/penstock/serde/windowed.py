"""Windowed keys, one at a time and by the column, and their serdes."""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from penstock.base.java_names import with_java_names
from penstock.base.late_polars import pl
from penstock.errors import SerializationError
from penstock.serde.base import FEW, BaseSerde, Serde, decode_rows, encode_only, encode_rows
from penstock.serde.column import Column, bytes_column, from_fixed_width, join, large_binary, parts, without_suffix

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SessionWindowedSerde", "TimeWindowedSerde", "Window", "Windowed", "WindowedColumn"]

K = TypeVar("K")


@with_java_names
@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A range of time in milliseconds; the operator decides whether ``end`` belongs to it."""

    start: int
    end: int


@with_java_names
@dataclass(frozen=True, slots=True, order=True)
class Windowed(Generic[K]):
    """Kafka's ``Windowed``: a key and the window it stands for."""

    key: K
    window: Window

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start}/{self.window.end}]"


class WindowedColumn(Column):
    """A column of `Windowed` keys as three columns; a row whose key is null is null.

    ``items()`` returns `Windowed` objects, ``series()`` structs of key, start and end.
    """

    __slots__ = ("ends", "keys", "starts")

    def __init__(self, keys: Column, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        super().__init__(None, None)
        self.keys = keys
        self.starts = starts
        self.ends = ends

    @classmethod
    def of(cls, column: Column) -> WindowedColumn:
        """Return the column itself if it is windowed, else one made of its `Windowed` items.

        Raises:
            SerializationError: An item is not a `Windowed`.
        """
        if isinstance(column, WindowedColumn):
            return column
        items = column.items()
        for row, item in enumerate(items):
            if item is not None and not isinstance(item, Windowed):
                raise SerializationError(
                    f"row {row}: {type(item).__name__} is not a windowed key",
                    hint="Give the windowed serde Windowed(key, Window(start, end)), or take the inner serde.",
                    row=row,
                )
        windows = [Window(0, 0) if item is None else item.window for item in items]
        return cls(
            Column.of_items([None if item is None else item.key for item in items]),
            np.array([window.start for window in windows], np.int64),
            np.array([window.end for window in windows], np.int64),
        )

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_columnar(self) -> bool:
        return self.keys.is_columnar

    def items(self) -> list[Any]:
        if self._items is None:
            rows = zip(self.keys.items(), self.starts.tolist(), self.ends.tolist(), strict=True)
            self._items = [None if key is None else Windowed(key, Window(start, end)) for key, start, end in rows]
        return self._items

    def series(self) -> pl.Series:
        if self._series is None:
            keys = self.keys.series()
            frame = pl.DataFrame({"key": keys, "start": pl.Series(self.starts), "end": pl.Series(self.ends)})
            present = pl.col("key").is_not_null()
            self._series = frame.select(pl.when(present).then(pl.struct("key", "start", "end")).alias("")).to_series()
        return self._series

    def null_mask(self) -> NDArray[np.bool_]:
        return self.keys.null_mask()

    def take(self, index: NDArray[np.int64]) -> WindowedColumn:
        return WindowedColumn(self.keys.take(index), self.starts[index], self.ends[index])

    def row(self, number: int) -> WindowedColumn:
        end = number + 1
        return WindowedColumn(self.keys.row(number), self.starts[number:end], self.ends[number:end])

    def concat_same(self, columns: Sequence[Column]) -> WindowedColumn:
        windowed = [WindowedColumn.of(column) for column in columns]
        return WindowedColumn(
            Column.concat([column.keys for column in windowed]),
            np.concatenate([column.starts for column in windowed]),
            np.concatenate([column.ends for column in windowed]),
        )


_LONG_MAX = (1 << 63) - 1
_ONE = struct.Struct(">q")
_TWO = struct.Struct(">qq")


class _WindowedSerde(BaseSerde):
    """The base of serdes of windowed keys; subclasses define the times that follow the key."""

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

    def encode_few(self, column: Column) -> list[bytes | None]:
        return self._few_rows(column) if isinstance(column, WindowedColumn) else super().encode_few(column)

    def _few_rows(self, windowed: WindowedColumn) -> list[bytes | None]:
        if len(windowed.starts) == 1:
            key = encode_only(self.inner, windowed.keys)
            return [None if key is None else key + self._suffix(windowed.starts.item(), windowed.ends.item())]
        rows = zip(
            encode_rows(self.inner, windowed.keys), windowed.starts.tolist(), windowed.ends.tolist(), strict=True
        )
        return [None if key is None else key + self._suffix(start, end) for key, start, end in rows]

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
    def _suffix(self, start: int, end: int) -> bytes: ...

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
        return self._key_bytes(windowed) + self._suffix(windowed.window.start, windowed.window.end)

    def _suffix(self, start: int, end: int) -> bytes:  # noqa: ARG002
        return _ONE.pack(start)

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
        return self._key_bytes(windowed) + self._suffix(windowed.window.start, windowed.window.end)

    def _suffix(self, start: int, end: int) -> bytes:
        return _TWO.pack(end, start)

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
