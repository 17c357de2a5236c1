"""Windowed keys, one at a time and by the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import polars as pl

from penstock.base.java_names import with_java_names
from penstock.errors import SerializationError
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Window", "Windowed", "WindowedColumn"]

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
