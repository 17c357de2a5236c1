"""Polars expressions over the rows of a batch.

The columns are ``key``, ``timestamp``, ``value`` and, when the value is a struct (or a dict), its fields. A field named
``key``, ``timestamp`` or ``value`` is reached as ``pl.col("value").struct.field(...)``. A literal counts for every row.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import polars as pl

from penstock.errors import ProcessingError
from penstock.serde.column import Column

if TYPE_CHECKING:
    from penstock.runtime.rows import Rows
    from penstock.topology.operations.functions import Function

__all__ = ["evaluate", "frame", "select"]

_RECORD_COLUMNS = ("key", "timestamp", "value")
_LIKELY_TYPES = (pl.String, pl.Int64, pl.Float64, pl.Boolean, pl.Binary, pl.List(pl.String))


def frame(rows: Rows, names: set[str] | None) -> pl.DataFrame:
    """Return the rows as a data frame with the columns of these names (None: all there are)."""
    columns: list[pl.Series] = []
    if names is None or "key" in names:
        columns.append(rows.keys.series().alias("key"))
    if names is None or "timestamp" in names:
        columns.append(pl.Series("timestamp", rows.timestamps, dtype=pl.Int64))
    fields = None if names is None else names.difference(_RECORD_COLUMNS)
    dicts = _dicts(rows.values) if fields and names is not None and "value" not in names else None
    if dicts is not None and fields:  # only the fields asked for: the rest may have no column type
        columns += [_looked_up(dicts, name) for name in sorted(fields)]
    elif names is None or "value" in names or fields:
        values = rows.values.series().alias("value")
        if names is None or "value" in names:
            columns.append(values)
        columns += _fields(values, fields, dynamic=rows.values.is_loose)
    if not columns:
        columns.append(pl.Series("timestamp", rows.timestamps, dtype=pl.Int64))
    return pl.DataFrame(columns)


def _dicts(values: Column) -> list[dict[str, Any] | None] | None:
    """Return the values, if they are Python dicts and not a column yet."""
    if type(values) is not Column or values.is_columnar or not set(map(type, values.items())) <= {dict, type(None)}:
        return None
    return values.items()


def _looked_up(dicts: list[dict[str, Any] | None], name: str) -> pl.Series:
    return Column.of_items([None if one is None else one.get(name) for one in dicts]).series().alias(name)


def _fields(values: pl.Series, names: set[str] | None, *, dynamic: bool) -> list[pl.Series]:
    """Return the struct's fields; those that no dict of this batch happens to have are null."""
    present = values.dtype.to_schema() if isinstance(values.dtype, pl.Struct) else {}
    field_names = [n for n in present if n not in _RECORD_COLUMNS] if names is None else sorted(names)
    series = [values.struct.field(n) for n in field_names if n in present]
    if dynamic or values.dtype == pl.Null:
        series += [pl.Series(n, [None] * len(values)) for n in field_names if n not in present]
    return series


def select(table: pl.DataFrame, expression: pl.Expr) -> pl.DataFrame:
    """Apply the expression to the columns.

    A column that happens to have only nulls in this batch has no type, and then ``str.len_chars()`` and its like fail.
    They are tried with the usual types in its place: of nulls they all make the same.
    """
    try:
        return table.select(expression)
    except pl.exceptions.PolarsError:
        untyped = [name for name, dtype in table.schema.items() if dtype == pl.Null]
        if not untyped:
            raise
        for dtype in _LIKELY_TYPES:
            with suppress(pl.exceptions.PolarsError):
                return table.with_columns(pl.col(untyped).cast(dtype)).select(expression)
        raise


def evaluate(function: Function, rows: Rows, node: str) -> pl.Series:
    """Return the expression's result for each row.

    Raises:
        ProcessingError: The expression does not return one value per row.
        Exception: Whatever Polars raises; the caller names the operator.
    """
    expression: pl.Expr = function.fn
    roots = expression.meta.root_names()
    patterns = any(not name or (name.startswith("^") and name.endswith("$")) for name in roots)
    names = None if patterns or expression.meta.has_multiple_outputs() else set(roots)
    result = select(frame(rows, names), expression)
    if result.width != 1:
        raise ProcessingError(
            f"{node}: the expression at {function.file}:{function.line} returns {result.width} columns, not one",
            hint="Combine them with pl.struct(...).",
            node=node,
            file=function.file,
            line=function.line,
        )
    series = result.to_series()
    if len(series) == len(rows):
        return series
    if len(series) == 1 and not roots:
        return series.new_from_index(0, len(rows))
    raise ProcessingError(
        f"{node}: the expression at {function.file}:{function.line} made {len(series)} values of {len(rows)} records",
        hint="An expression works record by record; aggregate with group_by() and count(), reduce() or aggregate().",
        node=node,
        file=function.file,
        line=function.line,
    )
