"""Calling a user's function once per row, so that one bad record never loses the good ones around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.expressions import evaluate
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.functions import Function

__all__ = ["apply", "call", "failures_removed", "gather"]

OnError = Callable[[int, Exception], None]


def apply(function: Function, rows: Rows, node: str, context: TaskContext) -> tuple[Column, NDArray[np.int64] | None]:
    """The function's result for each row, by expression or by calls.

    Returns:
        The results, and the positions of the rows that gave one (None: all did). Rows whose call raised are reported to
        the context and left out of both.
    """
    if function.is_expression:
        return _evaluate(function, rows, node, context)
    results, failed = call(function, rows, lambda row, error: context.failed(node, function, rows, row, error))
    return Column.of_items(results), failures_removed(failed, len(rows))


def call(function: Function, rows: Rows, on_error: OnError) -> tuple[list[Any], list[int]]:
    """Calls ``fn(value)`` or ``fn(key, value)`` for each row; gives the results and the rows that raised."""
    fn = function.fn
    values = iter(rows.values.items())
    calls: Iterator[Any] = map(fn, values) if function.arity == 1 else map(fn, iter(rows.keys.items()), values)
    return gather(calls, len(rows), on_error)


def gather(calls: Iterator[Any], total: int, on_error: OnError) -> tuple[list[Any], list[int]]:
    """The results of all calls that such a ``map`` over ``total`` rows makes, and the rows that raised."""
    results: list[Any] = []
    failed: list[int] = []
    while True:
        try:
            results.extend(calls)  # keeps what it has when a call raises, and the iterators stand behind that row
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            row = len(results) + len(failed)
            on_error(row, error)
            failed.append(row)
            continue
        row = len(results) + len(failed)
        if row == total:
            return results, failed
        # A StopIteration that leaves a user's function ends `map` silently.
        on_error(row, RuntimeError("the function raised StopIteration"))
        failed.append(row)


def failures_removed(failed: list[int], length: int) -> NDArray[np.int64] | None:
    """The positions that are not in ``failed``; None when nothing failed."""
    if not failed:
        return None
    mask = np.ones(length, np.bool_)
    mask[failed] = False
    return np.flatnonzero(mask)


def _evaluate(
    function: Function, rows: Rows, node: str, context: TaskContext
) -> tuple[Column, NDArray[np.int64] | None]:
    """Evaluates over all rows; if that raises, over halves, until only the bad rows are left out."""
    try:
        return Column.of_series(evaluate(function, rows, node)), None
    except ProcessingError:
        raise  # the expression itself is wrong, not a record
    except Exception as error:  # noqa: BLE001 - Polars raises many kinds
        if len(rows) == 1:
            context.failed(node, function, rows, 0, error)
            return Column.nulls(0), np.empty(0, np.int64)
    parts: list[Column] = []
    kept: list[NDArray[np.int64]] = []
    half = len(rows) // 2
    for start, stop in ((0, half), (half, len(rows))):
        positions = np.arange(start, stop)
        column, good = _evaluate(function, rows.take(positions), node, context)
        parts.append(column)
        kept.append(positions if good is None else positions[good])
    full = [p for p in parts if len(p)] or parts[:1]
    return Column.concat(full), np.concatenate(kept)
