"""Rows of text read by the column: a regular expression pins the layout that most rows of a batch have.

It matches only what the reader of single rows reads in the same way: which fields there are and in what order, numbers
of few digits, texts without escapes. All other rows are read one by one, so both ways have the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.serde.column import Column, RowColumn, large_binary, series_of
from penstock.sql.types import BIGINT, BOOLEAN, INTEGER, STRING, TIMESTAMP, SqlType
from penstock.sql.types.columns import DTYPES, typed_series

__all__ = ["FEW", "NUMBER", "WHOLE", "ColumnCapture", "RowLayout", "joined", "literal", "read_rows", "text_column"]

FEW = 24  # rows; for more, the work by column that has to be begun pays
MOST_LAYOUTS = 4  # of one batch
WHOLE: dict[SqlType, str] = {
    INTEGER: "-?(?:0|[1-9][0-9]{0,8})",
    BIGINT: "-?(?:0|[1-9][0-9]{0,17})",
    TIMESTAMP: "-?(?:0|[1-9][0-9]{0,17})",
}
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


@dataclass(frozen=True, slots=True)
class ColumnCapture:
    """A field of a layout.

    Attributes:
        pattern: Its expression, with one group, which takes no part in the match where the field is null.
        kind: The type of its values.
        read: Reads a text that the group has matched; None: as the type says, by the column.
    """

    pattern: str
    kind: SqlType
    read: Callable[[str], Any] | None = None

    def column(self, texts: pl.Series) -> Column:
        """Return the values of the texts."""
        if self.read is not None:
            read = self.read
            return Column.of_items([None if text is None else read(text) for text in texts.to_list()])
        if self.kind == STRING:
            return Column.of_series(texts)
        if self.kind == BOOLEAN:
            return Column.of_series(texts == "true")
        return Column.of_series(texts.cast(DTYPES[self.kind], strict=True))


class RowLayout:
    """An expression for whole rows.

    Args:
        pattern: The expression, with the groups of the captures in their order.
        captures: The columns of the rows in order; None for one that the layout lacks, which is null.
        order: For each capture the number of its group, from 1.
        nulls: Whether a row whose columns are all null is null itself.
    """

    def __init__(
        self, pattern: str, captures: Sequence[ColumnCapture | None], order: Sequence[int], *, nulls: bool = False
    ) -> None:
        self._pattern = rf"\A{pattern}()\z"  # the last group takes part in each match
        self._captures = tuple(captures)
        self._order = tuple(order)
        self._nulls = nulls

    def read(self, texts: pl.Series) -> tuple[np.ndarray[Any, Any], RowColumn]:
        """Return the mask of the texts that have the layout, and their rows.

        Raises:
            ValueError, ArithmeticError, PolarsError: A text of a field is not a value of its type.
        """
        groups = texts.str.extract_groups(self._pattern)
        fields = groups.struct.fields
        fits = groups.struct.field(fields[-1]).is_not_null()
        mask = fits.to_numpy()
        whole = bool(mask.all())
        count = len(texts) if whole else int(mask.sum())
        columns = []
        for capture, number in zip(self._captures, self._order, strict=True):
            if capture is None:
                columns.append(Column.nulls(count))
                continue
            series = groups.struct.field(fields[number - 1]).alias("")
            columns.append(capture.column(series if whole else series.filter(fits)))
        absent = columns[0].null_mask() if self._nulls else None
        return mask, RowColumn(columns, count, absent)


def read_rows(
    data: pa.Array, width: int, layout_of: Callable[[str], RowLayout | None], by_row: Callable[[bytes], Any]
) -> RowColumn | None:
    """Read rows of text by the layouts that they have, the others one by one.

    Args:
        data: The rows.
        width: The number of columns of a row.
        layout_of: The layout of a row, or None.
        by_row: Reads one row.

    Returns:
        The rows; None if some row cannot be read, which only the reading of all of them one by one can name.
    """
    data = large_binary(data)
    if len(data) <= FEW:
        return None
    try:
        texts = series_of(data.cast(pa.large_string()))
        rest = np.flatnonzero(texts.is_not_null().to_numpy()) if texts.null_count() else np.arange(len(texts))
        places: list[np.ndarray[Any, Any]] = []
        parts: list[Column] = []
        for _ in range(MOST_LAYOUTS):
            layout = layout_of(texts[int(rest[0])]) if len(rest) else None
            if layout is None:
                break
            mask, rows = layout.read(texts if len(rest) == len(texts) else texts[rest])
            if len(rows) == len(texts):
                return rows
            if not len(rows):
                break
            places.append(rest[mask])
            parts.append(rows)
            rest = rest[~mask]
        if len(rest):
            parts.append(_by_row([by_row(data[at].as_py()) for at in rest.tolist()], width))
            places.append(rest)
    except Exception:  # noqa: BLE001 - whatever is wrong with a row, reading it alone says so
        return None
    index = np.full(len(texts), -1, np.int64)
    if not parts:
        return RowColumn([Column.nulls(len(texts))] * width, len(texts), index < 0)
    index[np.concatenate(places)] = np.arange(sum(map(len, places)))
    return Column.concat(parts).take_or_null(index)  # type: ignore[return-value]  # all parts are rows


def _by_row(rows: list[Any], width: int) -> RowColumn:
    absent = np.fromiter((row is None for row in rows), np.bool_, len(rows))
    nothing = (None,) * width
    columns = zip(*[nothing if row is None else row for row in rows], strict=True)
    return RowColumn([Column.of_items(list(each)) for each in columns], len(rows), absent)


def literal(text: str) -> str:
    """Return a text as an expression that matches it alone."""
    return "".join([letter if letter.isascii() and letter.isalnum() else rf"\x{{{ord(letter):x}}}" for letter in text])


def text_column(column: Column, kind: SqlType) -> pl.Series | None:
    """Return the texts of whole numbers and booleans as JSON has them, and texts as they are; None of other types."""
    if kind not in (STRING, INTEGER, BIGINT, TIMESTAMP, BOOLEAN):
        return None
    series = typed_series(column, kind)
    return None if series is None else series.cast(pl.String)


def joined(parts: Sequence[str | pl.Series], length: int, absent: np.ndarray[Any, Any] | None) -> pa.Array:
    """Return the parts of each row, side by side, as bytes; null where a row is absent."""
    columns: list[pl.Series] = [pl.Series("rows", np.zeros(length, np.int8))]
    pieces: list[pl.Expr] = []
    for at, part in enumerate(parts):
        if isinstance(part, str):
            pieces.append(pl.lit(part))
        else:
            columns.append(part.alias(str(at)))
            pieces.append(pl.col(str(at)))
    texts = pl.DataFrame(columns).select(pl.concat_str(pieces).alias("text"), "rows").get_column("text")
    if absent is not None:
        texts = texts.zip_with(pl.Series(~absent), pl.Series([None], dtype=pl.String))
    return large_binary(texts.to_arrow())
