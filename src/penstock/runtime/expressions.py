"""Polars expressions over the rows of a batch.

The columns are ``key``, ``timestamp``, ``value`` and, when the value is a struct (or a dict), its fields. A field named
``key``, ``timestamp`` or ``value`` is reached as ``pl.col("value").struct.field(...)``. A literal counts for every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from penstock.errors import ProcessingError

if TYPE_CHECKING:
    from penstock.runtime.rows import Rows
    from penstock.topology.functions import Function

__all__ = ["evaluate", "frame"]

_RECORD_COLUMNS = ("key", "timestamp", "value")


def frame(rows: Rows, names: set[str] | None) -> pl.DataFrame:
    """The rows as a data frame with the columns of these names (None: all there are)."""
    columns: list[pl.Series] = []
    if names is None or "key" in names:
        columns.append(rows.keys.series().alias("key"))
    if names is None or "timestamp" in names:
        columns.append(pl.Series("timestamp", rows.timestamps, dtype=pl.Int64))
    fields = None if names is None else names.difference(_RECORD_COLUMNS)
    if names is None or "value" in names or fields:
        dynamic = not rows.values.is_columnar
        values = rows.values.series().alias("value")
        if names is None or "value" in names:
            columns.append(values)
        columns += _fields(values, fields, dynamic=dynamic)
    if not columns:
        columns.append(pl.Series("timestamp", rows.timestamps, dtype=pl.Int64))
    return pl.DataFrame(columns)


def _fields(values: pl.Series, names: set[str] | None, *, dynamic: bool) -> list[pl.Series]:
    """The struct's fields; those that no dict of this batch happens to have are null."""
    present = values.dtype.to_schema() if isinstance(values.dtype, pl.Struct) else {}
    wanted = [n for n in present if n not in _RECORD_COLUMNS] if names is None else sorted(names)
    found = [values.struct.field(n) for n in wanted if n in present]
    if dynamic or values.dtype == pl.Null:
        found += [pl.Series(n, [None] * len(values)) for n in wanted if n not in present]
    return found


def evaluate(function: Function, rows: Rows, node: str) -> pl.Series:
    """The expression's result for each row.

    Raises:
        ProcessingError: The expression does not give one value per row.
        Exception: What Polars raises; the caller names the operator.
    """
    expression: pl.Expr = function.fn
    roots = expression.meta.root_names()
    patterns = any(not name or (name.startswith("^") and name.endswith("$")) for name in roots)
    names = None if patterns or expression.meta.has_multiple_outputs() else set(roots)
    result = frame(rows, names).select(expression)
    if result.width != 1:
        raise ProcessingError(
            f"{node}: the expression at {function.file}:{function.line} gives {result.width} columns, not one",
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
        f"{node}: the expression at {function.file}:{function.line} gives {len(series)} values for {len(rows)} records",
        hint="An expression works record by record; aggregate with group_by() and count(), reduce() or aggregate().",
        node=node,
        file=function.file,
        line=function.line,
    )
