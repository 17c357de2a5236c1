"""Records that may meet a filter, found in the bytes of whole columns: only these need to be decoded.

Most records that a search looks at are not wanted. What a filter asks for is in the bytes of a record that meets it: a
text stands there as it is, or escaped, and a number behind the name of its field. So a search runs at the speed of a
scan. Where the bytes cannot tell, a record counts as one that may meet the filter; the filter itself decides.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from penstock.console.filter_syntax import All, Any_, Compare, Filter, Has, Path

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Columns", "candidates"]

_NUMBER = r"(-?[0-9][0-9.eE+-]*)"
_EXACT = 1e-9  # numbers in a text may be rounded
_SPANNING = frozenset('"\\:,{}[]')  # characters by which a text may span several parts of a document
_DIGITS = frozenset("0123456789.eE+-_")  # of which a number may consist, as it is written anew
_COMPARE: dict[str, Callable[[pl.Series, float], pl.Series]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Columns:
    """The columns of records that bytes are looked for in.

    Args:
        records: The records, as a log returns them.
        partition: Their partition.
        formats: The names of the serdes of key and value.
        opaque: Roots whose bytes say nothing, such as those with hidden fields.
    """

    def __init__(
        self, records: pa.RecordBatch, partition: int, formats: tuple[str, str], opaque: Collection[str] = ()
    ) -> None:
        self.number = records.num_rows
        self.partition = partition
        self.formats = dict(zip(("key", "value"), formats, strict=True))
        self.opaque = frozenset(opaque)
        self.records = records
        self._bytes: dict[str, pl.Series] = {}
        self._escaped: dict[str, pl.Series] = {}

    def numbers(self, name: str) -> pl.Series:
        """Return the offsets or timestamps."""
        return _series(self.records.column(name))

    def data(self, root: str) -> pl.Series:
        """Return the bytes of the keys or values."""
        if root not in self._bytes:
            self._bytes[root] = _series(self.records.column(root))
        return self._bytes[root]

    def contain(self, root: str, text: bytes) -> pl.Series:
        """Return which keys or values contain bytes; null counts, as the filter decides what it means."""
        return self.data(root).bin.contains(text).fill_null(value=True)

    def escaped(self, root: str) -> pl.Series:
        """Return which keys or values may have characters that are written in another way."""
        if root not in self._escaped:
            self._escaped[root] = self.contain(root, b"\\")
        return self._escaped[root]


def candidates(condition: Filter, columns: Columns) -> NDArray[np.bool_]:
    """Return which records may meet a filter; all others do not.

    >>> import pyarrow as pa
    >>> from penstock.console.filter_syntax import parse_filter
    >>> from penstock.log.base import RECORD_SCHEMA
    >>> rows = [{"offset": n, "timestamp": 0, "value": b'{"total": %d}' % n} for n in range(4)]
    >>> records = pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)
    >>> candidates(parse_filter("value.total >= 2"), Columns(records, 0, ("string", "json"))).tolist()
    [False, False, True, True]
    """
    rows = _may_meet(condition, columns)
    return np.ones(columns.number, np.bool_) if rows is None else rows.to_numpy().astype(np.bool_)


def _may_meet(condition: Filter, columns: Columns) -> pl.Series | None:
    """Return which records may meet a filter; None: the bytes cannot tell."""
    if isinstance(condition, All):
        deciding = [rows for part in condition.parts if (rows := _may_meet(part, columns)) is not None]
        return functools.reduce(operator.and_, deciding) if deciding else None
    if isinstance(condition, Any_):
        parts = [_may_meet(part, columns) for part in condition.parts]
        deciding = [rows for rows in parts if rows is not None]
        return functools.reduce(operator.or_, deciding) if len(deciding) == len(parts) else None
    if isinstance(condition, Has):
        return _has(condition.path, columns)
    return _compares(condition, columns) if isinstance(condition, Compare) else None


def _has(path: Path, columns: Columns) -> pl.Series | None:
    field = path.steps[-1] if path.steps else None
    if not _is_json(path, columns) or not isinstance(field, str):
        return None
    return columns.contain(path.root, f'"{field}"'.encode()) | columns.escaped(path.root)


def _compares(comparison: Compare, columns: Columns) -> pl.Series | None:
    path, literals = comparison.path, comparison.literals
    if path.root in ("offset", "timestamp", "partition"):
        return None if path.steps else _places(comparison, columns)
    if comparison.operator in ("!=", "!~") or path.root not in columns.formats or path.root in columns.opaque:
        return None
    if all(isinstance(literal, str) and literal for literal in literals):
        return _texts(comparison, columns)
    (literal, *others) = literals
    if others or isinstance(literal, bool) or not isinstance(literal, int | float) or not _is_json(path, columns):
        return None
    return _numbers(comparison, literal, columns)


def _places(comparison: Compare, columns: Columns) -> pl.Series | None:
    """Compare offsets, times or the partition, which are numbers as they stand."""
    literals = [each for each in comparison.literals if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(literals) < len(comparison.literals) or comparison.operator not in (*_COMPARE, "=", "in"):
        return None
    name = comparison.path.root
    values = pl.Series([columns.partition] * columns.number) if name == "partition" else columns.numbers(name)
    if comparison.operator in _COMPARE:
        return _COMPARE[comparison.operator](values, literals[0])
    return functools.reduce(operator.or_, (values == literal for literal in literals))


def _texts(comparison: Compare, columns: Columns) -> pl.Series | None:
    """Look for the literals among the bytes."""
    root, literals = comparison.path.root, [str(literal) for literal in comparison.literals]
    if comparison.operator not in ("=", "in", "~"):
        return None
    is_json = _is_json(comparison.path, columns)
    if not is_json and columns.formats[root] != "string":
        return None
    if is_json and comparison.operator == "~" and not _stays_whole(literals[0]):
        return None
    rows: pl.Series = functools.reduce(operator.or_, (columns.contain(root, each.encode()) for each in literals))
    return rows | columns.escaped(root) if is_json else rows


def _stays_whole(text: str) -> bool:
    """Return whether a text that is in a part of a document is in its bytes too, however numbers are written."""
    return not _SPANNING & set(text) and not set(text) <= _DIGITS


def _numbers(comparison: Compare, literal: float, columns: Columns) -> pl.Series | None:
    """Compare the number behind the name of the field, if the bytes have that name once."""
    field = comparison.path.steps[-1] if comparison.path.steps else None
    if not isinstance(field, str) or comparison.operator not in (*_COMPARE, "=") or re.search(r'["\\]', field):
        return None
    root, name = comparison.path.root, f'"{field}"'
    try:
        texts = columns.data(root).cast(pl.String)
    except pl.exceptions.PolarsError:  # not UTF-8, somewhere
        return None
    numbers = texts.str.extract(rf"{re.escape(name)}\s*:\s*{_NUMBER}", 1).cast(pl.Float64, strict=False)
    slack = abs(literal) * _EXACT
    if comparison.operator == "=":
        fits = (numbers - literal).abs() <= slack
    else:
        fits = _COMPARE[comparison.operator](
            numbers, literal + (slack if comparison.operator.startswith("<") else -slack)
        )
        fits = fits | (numbers == literal)
    times = texts.str.count_matches(name, literal=True)
    unknown = (times > 1) | (numbers.is_null() & (times > 0))
    return fits.fill_null(value=False) | unknown.fill_null(value=True) | columns.escaped(root)


def _is_json(path: Path, columns: Columns) -> bool:
    """Return whether the place is in JSON: also in a text, in which the filter looks for fields."""
    is_json = columns.formats.get(path.root) == "json" or (columns.formats.get(path.root) == "string" and path.steps)
    return bool(is_json) and path.root not in columns.opaque


def _series(column: pa.Array) -> pl.Series:
    series = pl.from_arrow(column)
    assert isinstance(series, pl.Series)  # noqa: S101 - an array is a series
    return series
