"""Columns of a batch in the form that has been needed so far (series, list, or both), and the Arrow arrays under them.

A column of keys or values is a Polars series (vectorised work) or a Python list (user functions).
It converts lazily, and keeps both forms once it has them, so each direction is paid at most once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SerializationError

if TYPE_CHECKING:
    import polars as pl  # a worker of connectors, which moves bytes, does not load it
    from numpy.typing import NDArray

__all__ = [
    "LARGE_BINARY",
    "Column",
    "RowColumn",
    "bytes_column",
    "cut",
    "fixed_width",
    "from_ends",
    "from_fixed_width",
    "join",
    "large_binary",
    "nulls_of",
    "parts",
    "series_of",
    "series_of_items",
    "to_bytes_list",
    "without_suffix",
]

LARGE_BINARY = pa.large_binary()
_BINARY = (LARGE_BINARY, pa.binary())
_FEW = 1_000
_FEW_BYTES = 24


def large_binary(data: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the same bytes as one ``large_binary`` array, from any binary or string type."""
    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks() if data.num_chunks != 1 else data.chunk(0)
    if data.type == LARGE_BINARY:
        return data
    if pa.types.is_null(data.type):
        return pa.nulls(len(data), LARGE_BINARY)
    return data.cast(LARGE_BINARY)


def bytes_column(rows: Sequence[bytes | None]) -> pa.Array:
    """Return a ``large_binary`` array of these rows."""
    return pa.array(rows, LARGE_BINARY)


def to_bytes_list(column: pa.Array) -> list[bytes | None]:
    """Return the elements as Python bytes; from some tens on several times faster than ``to_pylist``."""
    if len(column) <= _FEW_BYTES and column.type in _BINARY:
        return column.to_pylist()  # type: ignore[no-any-return]
    import polars as pl

    return pl.Series("", column, dtype=pl.Binary).to_list()


def from_ends(body: object, ends: list[int], items: list[object]) -> pa.Array:
    """Return rows that stand one after the other in ``body``; ``ends`` begins with 0, and rows of no item are null."""
    offsets = np.array(ends, np.int64)
    valid = None
    if None in items:
        mask = np.fromiter((item is not None for item in items), np.bool_, len(items))
        valid = pa.py_buffer(np.packbits(mask, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(body)]
    return pa.LargeBinaryArray.from_buffers(LARGE_BINARY, len(items), buffers)


def parts(data: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all bytes of the buffer, and the n + 1 offsets of the rows in it; bytes under a null row are undefined."""
    data = large_binary(data)
    if not len(data):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, body = data.buffers()
    starts = np.frombuffer(offsets, np.int64, len(data) + 1, data.offset * 8)
    return (np.frombuffer(body, np.uint8) if body is not None and body.size else np.empty(0, np.uint8)), starts


def fixed_width(data: pa.Array, width: int) -> tuple[NDArray[np.uint8] | None, NDArray[np.bool_] | None, int]:
    """Return rows of one width as a matrix of the rows that are not null.

    Returns:
        The matrix (None if some row has another width), the mask of present rows (None: all), and the first row
        of another width (-1: none).
    """
    data = large_binary(data)
    present = data.drop_null() if data.null_count else data
    valid = np.asarray(data.is_valid()) if data.null_count else None
    body, offsets = parts(present)
    wrong = np.flatnonzero(np.diff(offsets) != width)
    if len(wrong):
        row = int(wrong[0])
        return None, valid, row if valid is None else int(np.flatnonzero(valid)[row])
    return body[offsets[0] : offsets[-1]].reshape(-1, width), valid, -1


def from_fixed_width(matrix: NDArray[np.uint8], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return rows of one width as ``large_binary``; ``matrix`` has the present rows only, ``valid`` is their mask."""
    count, width = matrix.shape
    body = pa.py_buffer(np.ascontiguousarray(matrix))
    if valid is None:
        offsets = np.arange(count + 1, dtype=np.int64) * width
        return pa.LargeBinaryArray.from_buffers(LARGE_BINARY, count, [None, pa.py_buffer(offsets), body])
    offsets = np.zeros(len(valid) + 1, np.int64)
    np.cumsum(valid * width, out=offsets[1:])
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.LargeBinaryArray.from_buffers(LARGE_BINARY, len(valid), [bitmap, pa.py_buffer(offsets), body])


def without_suffix(data: pa.Array, suffix: int) -> pa.Array:
    """Return the rows without their last ``suffix`` bytes; every row that is not null must have as many."""
    return cut(data, 0, suffix)


def cut(data: pa.Array, before: NDArray[np.int64] | int, after: NDArray[np.int64] | int) -> pa.Array:
    """Return the rows without their first ``before`` and last ``after`` bytes; null rows stay null."""
    data = large_binary(data)
    if not len(data):
        return data
    body, offsets = parts(data)
    valid = np.asarray(data.is_valid())
    lengths = np.where(valid, np.diff(offsets) - before - after, 0)
    ends = np.zeros(len(data) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    kept = body[np.arange(ends[-1]) + np.repeat(offsets[:-1] + before - ends[:-1], lengths)] if ends[-1] else body[:0]
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(kept))]
    return pa.LargeBinaryArray.from_buffers(LARGE_BINARY, len(data), buffers)


def join(*pieces: pa.Array | bytes) -> pa.Array:
    """Join the pieces row by row, one after the other; null where any piece is."""
    empty = pa.scalar(b"", LARGE_BINARY)
    columns = [pa.scalar(piece, LARGE_BINARY) if isinstance(piece, bytes) else large_binary(piece) for piece in pieces]
    return pc.binary_join_element_wise(*columns, empty)


def series_of(data: pa.Array) -> pl.Series:
    """Return an Arrow array as a Polars series."""
    import polars as pl

    series = pl.from_arrow(data)
    assert isinstance(series, pl.Series)  # noqa: S101 - for the type checker: an array never becomes a frame
    return series


def nulls_of(series: pl.Series) -> NDArray[np.bool_]:
    """Return the mask of a series' nulls; for a few rows without a query, which takes Polars longer than all else."""
    if not series.null_count():
        return np.zeros(len(series), np.bool_)
    if len(series) > _FEW and not series.dtype.is_numeric():  # texts are copied on their way to Arrow
        return series.is_null().to_numpy()
    try:
        return np.asarray(series.to_arrow().is_null())
    except pa.ArrowInvalid:  # integers of 128 bits, which Arrow lacks
        return series.is_null().to_numpy()


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
        if self._series is not None:
            return self._series
        import polars as pl

        if self._dtype is not None:
            self._series = pl.Series("", self._items, self._dtype)
        else:
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
            import polars as pl

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
            import polars as pl

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
    import polars as pl

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
    import polars as pl

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
    import polars as pl

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
    import polars as pl

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
