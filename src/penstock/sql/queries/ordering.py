"""ORDER BY, LIMIT and OFFSET over the rows of a result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from penstock.sql.evaluate import compile_rows
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.queries.plans import Order, PullLimits

__all__ = ["limited", "ordered"]

Item = TypeVar("Item")


def ordered(
    items: Iterable[Item], order: tuple[Order, ...], row: Callable[[Item], tuple[Any, ...]], errors: EvaluationErrors
) -> Iterable[Item]:
    """Sort items by expressions over their rows; equal ones stay in their order.

    Args:
        items: The items.
        order: The expressions; without any the items stay as they are.
        row: The row of an item.
        errors: Counts the errors of the expressions.
    """
    if not order:
        return items
    keys = compile_rows([each.expression.typed for each in order], errors)
    rows = [(keys(row(item)), item) for item in items]
    for index, each in reversed(list(enumerate(order))):
        present = [pair for pair in rows if pair[0][index] is not None]
        null = [pair for pair in rows if pair[0][index] is None]
        present.sort(key=lambda pair: _sort_key(pair[0][index]), reverse=each.descending)
        rows = [*null, *present] if each.nulls_first else [*present, *null]
    return [item for _, item in rows]


def _sort_key(value: Any) -> Any:
    """Return a value as one that sorts: NaN above all numbers, as in Java."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


def limited(items: Iterable[Item], limits: PullLimits) -> Iterator[Item]:
    """Return the items behind OFFSET, as many as LIMIT says.

    >>> list(limited("abcde", PullLimits(2, 1)))
    ['b', 'c']
    """
    end = None if limits.limit is None else limits.offset + limits.limit
    return islice(items, limits.offset, end)
