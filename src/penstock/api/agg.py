"""Built-in aggregators, which run over whole columns: ``from penstock import agg``.

Each is an ordinary aggregator (``fn(key, value, aggregate)``), so it works wherever one does::

    orders.group_by_key().aggregate(agg.sum("amount"))
    orders.group_by_key().aggregate(agg.struct(orders=agg.count(), spent=agg.sum("amount"), mean=agg.mean("amount")))

A field is one of a struct or dict; without a field the value itself is meant. Nulls are left out.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.errors import TopologyError

__all__ = [
    "BuiltInAggregator",
    "MeanAggregator",
    "SimpleAggregator",
    "StructAggregator",
    "UniqueAggregator",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "n_unique",
    "struct",
    "sum",
]

SimpleKind = Literal["count", "sum", "min", "max", "first", "last"]


class BuiltInAggregator(ABC):
    """An aggregator that says what it is (``penstock_kind``), so that the runtime may take a faster way to the same."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Kafka's ``Aggregator.apply``; an aggregate of None has seen nothing yet."""

    @abstractmethod
    def merge(self, key: Any, left: Any, right: Any) -> Any:
        """Kafka's ``Merger.apply``: what two sessions, ``left`` the earlier one, come to as one."""

    @property
    def is_final(self) -> bool:
        """Whether the aggregate is the result."""
        return True

    @property
    def by_column(self) -> bool:
        """Whether it runs over whole columns, where these are of numbers."""
        return True

    def result(self, aggregate: Any) -> Any:
        """What an aggregate comes to."""
        return aggregate


@dataclass(frozen=True, slots=True)
class SimpleAggregator(BuiltInAggregator):
    """One number or value of each key."""

    penstock_kind: SimpleKind
    field: str | None = None

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:  # noqa: ARG002 - an aggregator's signature
        item = _item(value, self.field)
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
        whole = SimpleAggregator("sum" if self.penstock_kind == "count" else self.penstock_kind)
        return whole(None, right, left)


@dataclass(frozen=True, slots=True)
class StructAggregator(BuiltInAggregator):
    """Several at once, as a dict; ``parts`` are (name, aggregator) pairs."""

    parts: tuple[tuple[str, BuiltInAggregator], ...]
    penstock_kind: Literal["struct"] = "struct"

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        before = aggregate or {}
        return {name: part(key, value, before.get(name)) for name, part in self.parts}

    def merge(self, key: Any, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return {name: part.merge(key, left.get(name), right.get(name)) for name, part in self.parts}

    @property
    def is_final(self) -> bool:
        return all(part.is_final for _, part in self.parts)

    @property
    def by_column(self) -> bool:
        return all(part.by_column for _, part in self.parts)

    def result(self, aggregate: Any) -> Any:
        return {name: part.result(aggregate.get(name)) for name, part in self.parts}


@dataclass(frozen=True, slots=True)
class MeanAggregator(BuiltInAggregator):
    """The mean; what is kept is the sum and the count, as a dict."""

    field: str | None = None
    penstock_kind: Literal["mean"] = "mean"

    @property
    def kept(self) -> StructAggregator:
        """What is kept of each key."""
        of_field = (("sum", SimpleAggregator("sum", self.field)), ("count", SimpleAggregator("count", self.field)))
        return StructAggregator(of_field)

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self.kept(key, value, aggregate)

    def merge(self, key: Any, left: Any, right: Any) -> Any:
        return self.kept.merge(key, left, right)

    @property
    def is_final(self) -> bool:
        return False

    def result(self, aggregate: Any) -> Any:
        return aggregate["sum"] / aggregate["count"] if aggregate and aggregate["count"] else None


@dataclass(frozen=True, slots=True)
class UniqueAggregator(BuiltInAggregator):
    """How many different values; what is kept are the values, as a list."""

    field: str | None = None
    penstock_kind: Literal["n_unique"] = "n_unique"

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:  # noqa: ARG002 - an aggregator's signature
        item = _item(value, self.field)
        seen = aggregate or []
        return seen if item is None or item in seen else [*seen, item]

    def merge(self, key: Any, left: Any, right: Any) -> Any:  # noqa: ARG002 - a merger's signature
        return [*(left or []), *(item for item in right or [] if item not in (left or []))]

    @property
    def is_final(self) -> bool:
        return False

    @property
    def by_column(self) -> bool:
        return False

    def result(self, aggregate: Any) -> Any:
        return len(aggregate or [])


def _item(value: Any, field: str | None) -> Any:
    if field is None or value is None:
        return value
    return value.get(field) if isinstance(value, Mapping) else getattr(value, field)


def count(field: str | None = None) -> BuiltInAggregator:
    """Counts the records, or those whose field is not null.

    >>> count()("k", "v", 2)
    3
    """
    return SimpleAggregator("count", field)


def sum(field: str | None = None) -> BuiltInAggregator:  # noqa: A001 - SQL's name for it
    """Adds the values up.

    >>> sum("amount")("k", {"amount": 5}, 2)
    7
    """
    return SimpleAggregator("sum", field)


def min(field: str | None = None) -> BuiltInAggregator:  # noqa: A001
    """Keeps the smallest.

    >>> min()("k", 5, 2)
    2
    """
    return SimpleAggregator("min", field)


def max(field: str | None = None) -> BuiltInAggregator:  # noqa: A001
    """Keeps the largest.

    >>> max()("k", 5, 2)
    5
    """
    return SimpleAggregator("max", field)


def first(field: str | None = None) -> BuiltInAggregator:
    """Keeps the first.

    >>> first()("k", 5, 2)
    2
    """
    return SimpleAggregator("first", field)


def last(field: str | None = None) -> BuiltInAggregator:
    """Keeps the last.

    >>> last()("k", 5, 2)
    5
    """
    return SimpleAggregator("last", field)


def mean(field: str | None = None) -> MeanAggregator:
    """The mean of the values. The table's store keeps sum and count; the mean is taken behind it, by ``map_values``.

    >>> from penstock.testing import try_out
    >>> try_out(lambda s: s.group_by_key().aggregate(mean()), [("a", 1), ("a", 2)])
    [('a', 1.0), ('a', 1.5)]
    """
    return MeanAggregator(field)


def n_unique(field: str | None = None) -> UniqueAggregator:
    """How many different values there were. The table's store keeps them all, so they should be few for each key.

    >>> from penstock.testing import try_out
    >>> try_out(lambda s: s.group_by_key().aggregate(n_unique()), [("a", "x"), ("a", "y"), ("a", "x")])
    [('a', 1), ('a', 2), ('a', 2)]
    """
    return UniqueAggregator(field)


def struct(**parts: BuiltInAggregator) -> StructAggregator:
    """Several aggregators at once: the table's values are dicts with a result under each name.

    >>> from penstock.testing import try_out
    >>> totals = struct(orders=count(), spent=sum("amount"), largest=max("amount"))
    >>> try_out(lambda s: s.group_by_key().aggregate(totals), [("a", {"amount": 5}), ("a", {"amount": 2})])
    [('a', {'orders': 1, 'spent': 5, 'largest': 5}), ('a', {'orders': 2, 'spent': 7, 'largest': 5})]
    """
    wrong = [name for name, part in parts.items() if not isinstance(part, BuiltInAggregator)]
    if wrong or not parts:
        raise TopologyError(
            f"struct() takes built-in aggregators; {wrong[0]!r} is none" if wrong else "struct() has no parts",
            hint='For example agg.struct(orders=agg.count(), spent=agg.sum("amount")).',
        )
    return StructAggregator(tuple(parts.items()))
