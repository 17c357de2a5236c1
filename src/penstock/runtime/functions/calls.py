"""Calls of a user's function once per row; one bad record does not lose the good ones around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.functions.expressions import evaluate
from penstock.serde.column import Column
from penstock.topology.operations.functions import is_expression

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.operations.functions import Function

__all__ = ["apply", "call", "evaluate_by_halves", "failures_removed", "gather", "part_of", "returned_expression"]

OnError = Callable[[int, Exception], bool]  # returns whether the rows that follow fall with this one


def apply(function: Function, rows: Rows, node: str, context: TaskContext) -> tuple[Column, NDArray[np.int64] | None]:
    """Return the function's result for each row, by expression, over whole columns, or by calls.

    Returns:
        The results, and the positions of the rows that have one (None: all). Rows whose call raised are reported to the
        context and left out of both.
    """

    def failed_at(row: int, error: Exception) -> bool:
        return context.failed(node, function, rows, row, error)

    if function.is_expression:
        whole = range(len(rows))
        return evaluate_by_halves(
            lambda part: evaluate(function, part_of(rows, part), node), whole, failed_at, fatal=(ProcessingError,)
        )
    if function.takes_columns:
        column = function.over_columns(*((rows.values,) if function.arity == 1 else (rows.keys, rows.values)))
        if column is not None:
            return column, None
    results, failed = call(function, rows, failed_at)
    if results and is_expression(results[0]):
        raise returned_expression(function, node)
    return Column.of_items(results), failures_removed(failed, len(rows))


def returned_expression(function: Function, node: str) -> ProcessingError:
    """Return the error for a function whose result is an expression, not a value."""
    return ProcessingError(
        f"{node}: {function.location} returned a Polars expression instead of a value",
        hint='Pass the expression itself, without a function around it: filter(pl.col("a") > 1).',
        node=node,
        file=function.file,
        line=function.line,
    )


def call(function: Function, rows: Rows, on_error: OnError) -> tuple[list[Any], list[int]]:
    """Call ``fn(value)`` or ``fn(key, value)`` for each row; return the results and the rows that raised."""
    fn = function.fn
    values = iter(rows.values.items())
    calls: Iterator[Any] = map(fn, values) if function.arity == 1 else map(fn, iter(rows.keys.items()), values)
    return gather(calls, len(rows), on_error)


def gather(calls: Iterator[Any], total: int, on_error: OnError) -> tuple[list[Any], list[int]]:
    """Return the results of all calls that such a ``map`` over ``total`` rows makes, and the rows that raised."""
    results: list[Any] = []
    failed: list[int] = []
    while True:
        try:
            results.extend(calls)  # keeps its results when a call raises, and the iterators stand behind that row
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            raised = error
        else:
            # A StopIteration that leaves a user's function ends `map` silently.
            raised = RuntimeError("the function raised StopIteration")
        row = len(results) + len(failed)
        if row == total:
            return results, failed
        if on_error(row, raised):
            return results, [*failed, *range(row, total)]
        failed.append(row)


def failures_removed(failed: list[int], length: int) -> NDArray[np.int64] | None:
    """Return the positions that are not in ``failed``; None when nothing failed."""
    if not failed:
        return None
    mask = np.ones(length, np.bool_)
    mask[failed] = False
    return np.flatnonzero(mask)


def evaluate_by_halves(
    evaluate: Callable[[range], pl.Series], part: range, on_error: OnError, *, fatal: tuple[type[Exception], ...] = ()
) -> tuple[Column, NDArray[np.int64] | None]:
    """Evaluate an expression over some rows; if that raises, over halves, until only the bad rows are left out.

    Args:
        evaluate: Returns the results of the rows in a range.
        part: The rows, not empty.
        on_error: Called with each bad row and its error.
        fatal: Errors of the expression itself, which are raised.

    Returns:
        The results, and the rows that have one (None: all).
    """
    try:
        return Column.of_series(evaluate(part)), None
    except fatal:
        raise
    except Exception as error:  # noqa: BLE001 - Polars raises many kinds
        if len(part) == 1:
            on_error(part.start, error)
            return Column.nulls(0), np.empty(0, np.int64)
    results: list[Column] = []
    kept: list[NDArray[np.int64]] = []
    middle = part.start + len(part) // 2
    for half in (range(part.start, middle), range(middle, part.stop)):
        column, good = evaluate_by_halves(evaluate, half, on_error, fatal=fatal)
        results.append(column)
        kept.append(np.arange(half.start, half.stop) if good is None else good)
    full = [column for column in results if len(column)] or results[:1]
    return Column.concat(full), np.concatenate(kept)


def part_of(rows: Rows, part: range) -> Rows:
    """Return the rows of a range; ``rows`` itself for all of them."""
    return rows if len(part) == len(rows) else rows.take(np.arange(part.start, part.stop))
