"""Built-in aggregators, which run over whole columns: ``from penstock import agg``.

Each is an ordinary aggregator (``fn(key, value, aggregate)``), so it works wherever one does::

    orders.group_by_key().aggregate(agg.sum("amount"))

A field is one of a struct or dict; without a field the value itself is meant. Nulls are left out.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["BuiltInAggregator", "count", "first", "last", "max", "min", "sum"]

AggregatorKind = Literal["count", "sum", "min", "max", "first", "last"]


@dataclass(frozen=True, slots=True)
class BuiltInAggregator:
    """An aggregator that says what it is (``penstock_kind``), so that the runtime may take a faster way to the same."""

    penstock_kind: AggregatorKind
    field: str | None = None

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:  # noqa: ARG002 - an aggregator's signature
        """Kafka's ``Aggregator.apply``; an aggregate of None has seen nothing yet."""
        item = self._item(value)
        kind = self.penstock_kind
        if kind == "count":
            counted = self.field is None or item is not None
            return (aggregate or 0) + counted
        if item is None or (aggregate is not None and kind == "first"):
            return aggregate
        if aggregate is None or kind == "last":
            return item
        if kind == "sum":
            return aggregate + item
        return builtins.min(aggregate, item) if kind == "min" else builtins.max(aggregate, item)

    def merge(self, key: Any, left: Any, right: Any) -> Any:  # noqa: ARG002 - a merger's signature
        """Kafka's ``Merger.apply``: what two sessions, ``left`` the earlier one, come to as one."""
        whole = BuiltInAggregator("sum" if self.penstock_kind == "count" else self.penstock_kind)
        return whole(None, right, left)

    def _item(self, value: Any) -> Any:
        if self.field is None or value is None:
            return value
        return value.get(self.field) if isinstance(value, Mapping) else getattr(value, self.field)


def count(field: str | None = None) -> BuiltInAggregator:
    """Counts the records, or those whose field is not null.

    >>> count()("k", "v", 2)
    3
    """
    return BuiltInAggregator("count", field)


def sum(field: str | None = None) -> BuiltInAggregator:  # noqa: A001 - SQL's name for it
    """Adds the values up.

    >>> sum("amount")("k", {"amount": 5}, 2)
    7
    """
    return BuiltInAggregator("sum", field)


def min(field: str | None = None) -> BuiltInAggregator:  # noqa: A001
    """Keeps the smallest.

    >>> min()("k", 5, 2)
    2
    """
    return BuiltInAggregator("min", field)


def max(field: str | None = None) -> BuiltInAggregator:  # noqa: A001
    """Keeps the largest.

    >>> max()("k", 5, 2)
    5
    """
    return BuiltInAggregator("max", field)


def first(field: str | None = None) -> BuiltInAggregator:
    """Keeps the first.

    >>> first()("k", 5, 2)
    2
    """
    return BuiltInAggregator("first", field)


def last(field: str | None = None) -> BuiltInAggregator:
    """Keeps the last.

    >>> last()("k", 5, 2)
    5
    """
    return BuiltInAggregator("last", field)
