"""A column of rows, kept as the columns that they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RowColumn"]


class RowColumn(Column):
    """A column whose values are tuples of the same width, or null; ``items()`` makes the tuples when they are needed.

    Args:
        columns: The columns of the rows; what they hold in a row that is null does not count.
        length: The number of rows, as rows may have no columns.
        absent: The mask of the rows that are null; None: none is.

    >>> rows = RowColumn([Column.of_items([1, 2]), Column.of_items(["a", None])], 2, np.array([False, True]))
    >>> rows.items()
    [(1, 'a'), None]
    """

    __slots__ = ("absent", "columns", "length")

    def __init__(self, columns: Sequence[Column], length: int, absent: NDArray[np.bool_] | None = None) -> None:
        super().__init__(None, None)
        self.columns = tuple(columns)
        self.length = length
        self.absent = absent if absent is not None and absent.any() else None

    def __len__(self) -> int:
        return self.length

    def items(self) -> list[Any]:
        if self._items is None:
            rows: list[Any] = [()] * self.length
            if self.columns:
                rows = list(zip(*[column.items() for column in self.columns], strict=True))
            if self.absent is not None:
                for row in np.flatnonzero(self.absent).tolist():
                    rows[row] = None
            self._items = rows
        return self._items

    def null_mask(self) -> NDArray[np.bool_]:
        return np.zeros(self.length, np.bool_) if self.absent is None else self.absent

    def shown(self) -> tuple[Column, ...]:
        """Return the columns, with nulls where the row is null."""
        if self.absent is None:
            return self.columns
        index = np.where(self.absent, -1, np.arange(self.length))
        return tuple([column.take_or_null(index) for column in self.columns])

    def take(self, index: NDArray[np.int64]) -> RowColumn:
        absent = None if self.absent is None else self.absent[index]
        return RowColumn([column.take(index) for column in self.columns], len(index), absent)

    def take_or_null(self, index: NDArray[np.int64]) -> RowColumn:
        missing = index < 0
        absent = missing if self.absent is None or not self.length else missing | self.absent[index]
        return RowColumn([column.take_or_null(index) for column in self.columns], len(index), absent)

    def concat_same(self, columns: Sequence[Column]) -> Column:
        kept = [each for each in columns if isinstance(each, RowColumn)]
        if any(len(each.columns) != len(self.columns) for each in kept):
            return super().concat_same(columns)
        parts: list[Sequence[Column]] = [
            each.columns if isinstance(each, RowColumn) else [Column.nulls(len(each))] * len(self.columns)
            for each in columns
        ]
        absent = np.concatenate([each.null_mask() for each in columns])
        return RowColumn([Column.concat(each) for each in zip(*parts, strict=True)], len(absent), absent)

    def holds(self, other: Column) -> bool:
        return isinstance(other, RowColumn) or (type(other) is Column and bool(other.null_mask().all()))
