"""Calling a joiner over the rows of a batch: a user's function of two values, or an expression over both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.errors import ProcessingError
from penstock.runtime.functions.calls import evaluate_by_halves, failures_removed, gather, part_of, returned_expression
from penstock.runtime.functions.expressions import frame
from penstock.runtime.rows import Rows
from penstock.serde.column import Column
from penstock.topology.operations.functions import is_expression

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.operations.functions import Function

__all__ = ["join_rows", "join_values"]


def join_rows(
    joiner: Function, rows: Rows, right: Column, node: str, context: TaskContext, mapped: Column | None = None
) -> Rows:
    """Return the rows, whose values are the left side, with the joiner's results as values; see `join_values`."""
    results, kept = join_values(joiner, rows, right, node, context, mapped)
    return (rows if kept is None else rows.take(kept)).with_values(results)


def join_values(
    joiner: Function, rows: Rows, right: Column, node: str, context: TaskContext, mapped: Column | None = None
) -> tuple[Column, NDArray[np.int64] | None]:
    """Return the joiner's result for each row, whose value is the left side.

    An expression sees ``key``, ``timestamp``, ``left`` and ``right``, and the fields of both sides: a field that both
    have is the left one's; the right one's is ``<field>_right`` then, as in Polars' own joins.

    Args:
        joiner: The joiner.
        rows: The rows.
        right: The values of the other side.
        node: The node of the join.
        context: The task.
        mapped: The keys of the other side, for a joiner that gets them behind the rows' own keys.

    Returns:
        The results, and the positions of the rows that have one (None: all). Rows whose call raised are reported to the
        context and left out of both.
    """
    if not len(rows):
        return Column.nulls(0), None

    def failed_at(row: int, error: Exception) -> bool:
        return context.failed(node, joiner, rows, row, error)

    if joiner.is_expression:

        def evaluate(part: range) -> pl.Series:
            others = right if len(part) == len(right) else right.take(np.arange(part.start, part.stop))
            return _evaluate(joiner, part_of(rows, part), others, node)

        return evaluate_by_halves(evaluate, range(len(rows)), failed_at)
    column = (
        None
        if mapped is not None
        else joiner.over_columns(*((rows.keys,) if joiner.arity == 3 else ()), rows.values, right)
    )
    if column is not None:
        return column, None
    fn: Callable[..., Any] = joiner.fn
    values = iter(rows.values.items()), iter(right.items())
    if mapped is not None:
        calls = map(fn, iter(rows.keys.items()), iter(mapped.items()), *values)
    else:
        calls = map(fn, iter(rows.keys.items()), *values) if joiner.arity == 3 else map(fn, *values)
    results, failed = gather(calls, len(rows), failed_at)
    if results and is_expression(results[0]):
        raise returned_expression(joiner, node)
    return Column.of_items(results), failures_removed(failed, len(rows))


def _evaluate(joiner: Function, rows: Rows, right: Column, node: str) -> pl.Series:
    table = frame(rows, None)
    lefts = table.get_column("value").alias("left")
    rights = right.series().alias("right")
    columns = [c for c in table.get_columns() if c.name not in ("value", "left", "right")]
    taken = {c.name for c in columns}
    if isinstance(rights.dtype, pl.Struct):
        columns += [
            rights.struct.field(name).alias(f"{name}_right" if name in taken else name)
            for name in rights.struct.fields
            if name not in ("key", "timestamp", "value", "left", "right")
        ]
    if pl.Null in (lefts.dtype, rights.dtype):  # no row of that side has a value, so its fields are unknown
        column_names = {"left", "right", *(c.name for c in columns)}
        columns += [pl.Series(n, [None] * len(rows)) for n in sorted({*joiner.fn.meta.root_names()} - column_names)]
    result = pl.DataFrame([*columns, lefts, rights]).select(joiner.fn)
    if result.width != 1 or len(result) != len(rows):
        raise ProcessingError(
            f"{node}: the joiner at {joiner.file}:{joiner.line} must return one value per record",
            hint="Combine several with pl.struct(...).",
            node=node,
        )
    return result.to_series()
