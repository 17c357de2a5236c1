"""One column of a batch, in the form that has been needed so far: series, list, or both.

A column of keys or values is a Polars series (vectorised work) or a Python list (user functions).
It converts lazily, and keeps both forms once it has them, so each direction is paid at most once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.errors import SerializationError
from penstock.serde.buffers import nulls_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Column", "series_of_items"]


class Column:
    """Keys or values of a batch; immutable.

    ``Column.of_items([...])`` and ``Column.of_series(pl.Series(...))`` make one.
    Subclasses (windowed keys) keep other forms and override the conversions.
    """

    __slots__ = ("_dtype", "_items", "_series", "is_loose", "is_padded")

    def __init__(
        self,
        items: list[Any] | None,
        series: pl.Series | None,
        *,
        dtype: Any = None,
        is_loose: bool | None = None,
        is_padded: bool = False,
    ) -> None:
        self._items = items
        self._series = series
        self._dtype = dtype  # of the series, where the objects alone do not say it
        # Made of Python objects: which fields its struct type has is a matter of the values that happen to be there.
        self.is_loose = series is None and dtype is None if is_loose is None else is_loose
        # The series has nulls where the objects have no such field; then the objects are written.
        self.is_padded = is_padded

    @classmethod
    def of_items(cls, items: list[Any], dtype: Any = None) -> Column:
        """Make a column of Python values; with a Polars type, they are values of it, or null."""
        return Column(items, None, dtype=dtype)

    @classmethod
    def of_series(cls, series: pl.Series) -> Column:
        """Make a column of a Polars series."""
        return Column(None, series)

    @classmethod
    def nulls(cls, length: int) -> Column:
        """Make a column of ``length`` nulls."""
        return Column([None] * length, None)

    def __len__(self) -> int:
        return len(self._items) if self._items is not None else len(self._series)  # type: ignore[arg-type]

    @property
    def is_columnar(self) -> bool:
        """Whether the series form is there without a conversion."""
        return self._series is not None

    def items(self) -> list[Any]:
        """Return the values as Python objects; do not change the list."""
        if self._items is None:
            self._items = self._series.to_list()  # type: ignore[union-attr]
        return self._items

    def series(self) -> pl.Series:
        """Return the values as a Polars series; raise SerializationError for objects that have no column type."""
        if self._series is None and self._dtype is not None:
            self._series = pl.Series("", self._items, self._dtype)
        if self._series is None:
            try:
                self._series, self.is_padded = series_of_items(self.items())
            except (TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
                raise SerializationError(
                    f"these values have no column type: {error}",
                    hint="Give a Python function instead of an expression, or a serde with a schema.",
                ) from error
        return self._series

    def null_mask(self) -> NDArray[np.bool_]:
        """Return the mask of nulls."""
        if self._series is not None:
            return nulls_of(self._series)
        return np.fromiter((v is None for v in self._items), np.bool_, len(self._items))  # type: ignore[union-attr,arg-type]

    def take(self, index: NDArray[np.int64]) -> Column:
        """Return the rows at these positions, in this order."""
        if len(index) == 1 == len(self):
            return self
        items = None if self._items is None else [self._items[i] for i in index.tolist()]
        series = None if self._series is None else self._series[index]  # not gather(): that is a query
        return Column(items, series, dtype=self._dtype, is_loose=self.is_loose, is_padded=self.is_padded)

    def row(self, number: int) -> Column:
        """Return one row."""
        if type(self) is not Column or self._items is None:
            return self.take(np.array([number]))
        series = None if self._series is None else self._series[number : number + 1]
        items = self._items[number : number + 1]
        return Column(items, series, dtype=self._dtype, is_loose=self.is_loose, is_padded=self.is_padded)

    def take_or_null(self, index: NDArray[np.int64]) -> Column:
        """Return the values at these positions; null where the position is negative."""
        missing = index < 0
        if not missing.any():
            return self.take(index)
        if self.is_columnar:
            positions = pl.Series(index, dtype=pl.Int64).set(pl.Series(missing), None)
            return Column.of_series(self.series().gather(positions))
        items = [*self.items(), None]
        return Column.of_items([items[i] for i in index.tolist()], self._dtype)

    def filter(self, mask: NDArray[np.bool_]) -> Column:
        """Return the rows where the mask is true."""
        return self.take(np.flatnonzero(mask))

    @classmethod
    def concat(cls, columns: Sequence[Column]) -> Column:
        """Return all rows of the columns, one after the other."""
        if len(columns) == 1:
            return columns[0]
        special = next((c for c in columns if type(c) is not Column), None)
        if special is not None and all(special.holds(c) for c in columns):
            return special.concat_same(columns)
        if all(c.is_columnar and not c.is_padded for c in columns) and len({c.series().dtype for c in columns}) == 1:
            series = pl.concat([c.series() for c in columns])
            return Column(None, series, is_loose=any(c.is_loose for c in columns))
        types = {c.known_type() for c in columns} if special is None else set()
        dtype = types.pop() if len(types) == 1 else None
        return Column.of_items([item for c in columns for item in c.items()], dtype)

    def known_type(self) -> Any:
        """Return the Polars type of the values, where it is known without a look at the values."""
        if self._series is None:
            return self._dtype
        return None if self.is_padded or self.is_loose else self._series.dtype

    def holds(self, other: Column) -> bool:
        """Return whether `concat_same` takes another column."""
        return type(other) is type(self)

    def concat_same(self, columns: Sequence[Column]) -> Column:
        """Concatenate columns that this class holds; subclasses keep their own form."""
        return Column.of_items([item for column in columns for item in column.items()])


def series_of_items(items: list[Any]) -> tuple[pl.Series, bool]:
    """Return the series, and whether dicts had to get fields (as nulls) that only others have.

    Raises:
        TypeError, ValueError, PolarsError: The values have no common type.
    """
    kinds = set(map(type, items))
    if dict not in kinds:
        documents = _documents(kinds - {type(None)}, items)
        if documents is not None:
            return documents, False
        return _checked(pl.Series("", items, strict=True), items), False
    if not kinds <= {dict, type(None)}:
        raise TypeError(f"dicts are mixed with {', '.join(sorted(kind.__name__ for kind in kinds - {dict}))}")
    first = next(item for item in items if item is not None).keys()
    if all(item is None or item.keys() == first for item in items):
        series = pl.Series("", items, strict=True)
        if not _is_nested(series.dtype) or _same(series.to_list(), items):
            return _checked(series, items), False
    filled = _with_all_fields(items)
    series = pl.Series("", filled, strict=True)
    if not _same(series.to_list(), filled):
        raise TypeError("nested values differ in their types")
    return _checked(series, items), filled != items


def _documents(kinds: set[type], items: list[Any]) -> pl.Series | None:
    """Return objects of one dataclass or pydantic model as structs; None if they are something else."""
    kind = next(iter(kinds), None)
    if len(kinds) != 1 or kind is None or kind.__module__ == "builtins":
        return None
    from penstock.serde.models import compiled, documents, has_fields

    column_type = compiled(kind).column_type if has_fields(kind) else None
    if column_type is None:
        return None
    rows = documents(kind, items)
    if isinstance(column_type, pl.Struct):  # others are of pydantic's models of one value
        names = column_type.to_schema()
        rows = [each if each is None else {name: each[name] for name in names} for each in rows]
    return pl.Series("", rows, column_type)


def _checked(series: pl.Series, items: list[Any]) -> pl.Series:
    if series.dtype == pl.Object:
        odd = next(item for item in items if item is not None)
        raise TypeError(f"values of type {type(odd).__name__}")
    if isinstance(series.dtype, pl.List | pl.Array) and not _same(series.to_list(), items):
        raise TypeError("lists differ in their types")
    return series


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are equal; a tuple is a list, and NaN is NaN."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    return bool(left == right or (left != left and right != right))  # noqa: PLR0124


def _is_nested(dtype: Any) -> bool:
    return any(isinstance(field.dtype, pl.Struct | pl.List | pl.Array) for field in dtype.fields)


def _with_all_fields(values: list[Any]) -> list[Any]:
    """Return the values with all dicts, and those inside them, extended by the fields that any of their kind has."""
    dicts = [value for value in values if isinstance(value, dict)]
    if dicts:
        names = list(dict.fromkeys(name for one in dicts for name in one))
        columns = [_with_all_fields([one.get(name) for one in dicts]) for name in names]
        rows = iter([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or [{}] * len(dicts))
        return [next(rows) if isinstance(value, dict) else value for value in values]
    if any(isinstance(value, list) for value in values):
        flat = iter(_with_all_fields([inner for value in values if isinstance(value, list) for inner in value]))
        return [[next(flat) for _ in value] if isinstance(value, list) else value for value in values]
    return values
