"""Columns of values as Polars series, for the types of which both forms say the same."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl

from penstock.serde.column import Column
from penstock.sql.types.sql_type import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, STRING, TIMESTAMP, SqlType

__all__ = ["DTYPES", "typed_series"]

DTYPES: dict[SqlType, pl.DataType] = {
    BOOLEAN: pl.Boolean(),
    INTEGER: pl.Int32(),
    BIGINT: pl.Int64(),
    DOUBLE: pl.Float64(),
    STRING: pl.String(),
    DATE: pl.Date(),
    TIMESTAMP: pl.Int64(),
}
_KINDS: dict[SqlType, type] = {
    BOOLEAN: bool, INTEGER: int, BIGINT: int, DOUBLE: float, STRING: str, DATE: dt.date, TIMESTAMP: int,
}  # fmt: skip


def typed_series(column: Column, kind: SqlType) -> pl.Series | None:
    """Return the values as a series of the dtype of their type; None if a value or the type has none.

    >>> typed_series(Column.of_items([1, None]), INTEGER).dtype
    Int32
    >>> typed_series(Column.of_items(["a", 1]), STRING) is None
    True
    """
    dtype = DTYPES.get(kind)
    if dtype is None:
        return None
    if column.is_columnar:
        series = column.series()
        if series.dtype == dtype:
            return series
        return pl.Series("", [None] * len(series), dtype) if series.dtype == pl.Null else None
    items: list[Any] = column.items()
    if not set(map(type, items)) <= {_KINDS[kind], type(None)}:
        return None
    try:
        return pl.Series("", items, dtype=dtype, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return None  # a lone surrogate, a number that is too large
