"""Built-in aggregators, which run over whole columns: ``from penstock import agg``.

Each is an ordinary aggregator (``fn(key, value, aggregate)``), so it works wherever one does::

    orders.group_by_key().aggregate(agg.sum("amount"))
    orders.group_by_key().aggregate(agg.struct(orders=agg.count(), spent=agg.sum("amount"), mean=agg.mean("amount")))

``field`` names a field of a struct or dict; without it the value itself is aggregated. Nulls are skipped. A sum and a
mean refuse what is not a number, record by record. So do the smallest and the largest where a key has numbers; a value
of another kind that came before them gives way.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from numbers import Number
from typing import Any, Literal

from penstock.errors import TopologyError

__all__ = [
    "BuiltInAggregator",
    "MeanAggregator",
    "SimpleAggregator",
    "StructAggregator",
    "TopAggregator",
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
    "top",
]

_ADDED = (Number, timedelta)  # what a sum takes

SimpleKind = Literal["count", "sum", "min", "max", "first", "last"]


class BuiltInAggregator(ABC):
    """An aggregator of a known kind (``penstock_kind``), which the runtime may compute over whole columns."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate with one more value: Kafka's ``Aggregator.apply``. None aggregates no values."""

    @abstractmethod
    def merge(self, key: Any, left: Any, right: Any) -> Any:
        """Return the aggregate of two sessions that become one, ``left`` the earlier: Kafka's ``Merger.apply``."""

    @property
    def is_final(self) -> bool:
        """Whether the aggregate is the result."""
        return True

    @property
    def by_column(self) -> bool:
        """Whether it can run over whole columns of numbers."""
        return True

    @property
    def fields_read(self) -> frozenset[str]:
        """The fields of the value that it reads."""
        field: str | None = getattr(self, "field", None)
        return frozenset() if field is None else frozenset({field})

    def result(self, aggregate: Any) -> Any:
        """Return the result for an aggregate."""
        return aggregate


@dataclass(frozen=True, slots=True)
class SimpleAggregator(BuiltInAggregator):
    """An aggregate of one number or value for each key."""

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
        if kind in ("first", "last"):
            return item
        if kind == "sum":
            if not isinstance(item, _ADDED):
                raise TypeError(f"agg.sum() and agg.mean() add numbers, not {type(item).__name__} {item!r:.40}")
            return item if aggregate is None else aggregate + item
        return self._extreme(item, aggregate)

    def _extreme(self, item: Any, aggregate: Any) -> Any:
        """Return the smaller or larger one; where numbers and other values mix, only the numbers are compared."""
        kind = self.penstock_kind
        if aggregate is None:
            item < item  # noqa: B015, PLR0124 - raises for a value that has no order
            return item
        if isinstance(item, Number) != isinstance(aggregate, Number):
            if isinstance(item, Number):
                return item
            raise TypeError(f"agg.{kind}() has a number for this key, {aggregate!r:.40}, not {item!r:.40}")
        return builtins.min(aggregate, item) if kind == "min" else builtins.max(aggregate, item)

    def merge(self, key: Any, left: Any, right: Any) -> Any:  # noqa: ARG002 - a merger's signature
        whole = SimpleAggregator("sum" if self.penstock_kind == "count" else self.penstock_kind)
        return whole(None, right, left)


@dataclass(frozen=True, slots=True)
class StructAggregator(BuiltInAggregator):
    """Several aggregates in one dict; ``parts`` are (name, aggregator) pairs."""

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

    @property
    def fields_read(self) -> frozenset[str]:
        return frozenset().union(*(part.fields_read for _, part in self.parts))

    def result(self, aggregate: Any) -> Any:
        return {name: part.result(aggregate.get(name)) for name, part in self.parts}


@dataclass(frozen=True, slots=True)
class MeanAggregator(BuiltInAggregator):
    """The mean; the store keeps the sum and the count, as a dict."""

    field: str | None = None
    penstock_kind: Literal["mean"] = "mean"

    @property
    def kept(self) -> StructAggregator:
        """The aggregator of the sum and the count, which the store keeps for each key."""
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
    """The number of different values; the store keeps the values, as a list."""

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


@dataclass(frozen=True, slots=True)
class TopAggregator(BuiltInAggregator):
    """The values with the largest field, as a list: the largest first, of equal ones the earlier."""

    size: int
    field: str | None = None
    penstock_kind: Literal["top"] = "top"

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:  # noqa: ARG002 - an aggregator's signature
        best, item = aggregate or [], _item(value, self.field)
        rank = len(best)
        if item is None or (rank == self.size and not _item(best[-1], self.field) < item):
            return best
        while rank and _item(best[rank - 1], self.field) < item:
            rank -= 1
        return [*best[:rank], value, *best[rank : self.size - 1]]

    def merge(self, key: Any, left: Any, right: Any) -> Any:
        best = left
        for value in right or []:
            best = self(key, value, best)
        return best

    @property
    def by_column(self) -> bool:
        return False


def _item(value: Any, field: str | None) -> Any:
    if field is None or value is None:
        return value
    return value.get(field) if isinstance(value, Mapping) else getattr(value, field)


def count(field: str | None = None) -> BuiltInAggregator:
    """Count the records, or those whose field is not null.

    >>> count()("k", "v", 2)
    3
    """
    return SimpleAggregator("count", field)


def sum(field: str | None = None) -> BuiltInAggregator:  # noqa: A001 - SQL's name for it
    """Add the values.

    >>> sum("amount")("k", {"amount": 5}, 2)
    7
    """
    return SimpleAggregator("sum", field)


def min(field: str | None = None) -> BuiltInAggregator:  # noqa: A001
    """Keep the smallest value.

    >>> min()("k", 5, 2)
    2
    """
    return SimpleAggregator("min", field)


def max(field: str | None = None) -> BuiltInAggregator:  # noqa: A001
    """Keep the largest value.

    >>> max()("k", 5, 2)
    5
    """
    return SimpleAggregator("max", field)


def first(field: str | None = None) -> BuiltInAggregator:
    """Keep the first value.

    >>> first()("k", 5, 2)
    2
    """
    return SimpleAggregator("first", field)


def last(field: str | None = None) -> BuiltInAggregator:
    """Keep the last value.

    >>> last()("k", 5, 2)
    5
    """
    return SimpleAggregator("last", field)


def mean(field: str | None = None) -> MeanAggregator:
    """Compute the mean of the values. The table's store keeps the sum and the count; ``map_values`` divides them.

    >>> from penstock.testing import try_out
    >>> try_out(lambda s: s.group_by_key().aggregate(mean()), [("a", 1), ("a", 2)])
    [('a', 1.0), ('a', 1.5)]
    """
    return MeanAggregator(field)


def n_unique(field: str | None = None) -> UniqueAggregator:
    """Count the different values. The table's store keeps them all, so each key should have few.

    >>> from penstock.testing import try_out
    >>> try_out(lambda s: s.group_by_key().aggregate(n_unique()), [("a", "x"), ("a", "y"), ("a", "x")])
    [('a', 1), ('a', 2), ('a', 2)]
    """
    return UniqueAggregator(field)


def top(size: int, field: str | None = None) -> TopAggregator:
    """Keep the ``size`` values with the largest field, as a list: the largest first, of equal ones the earlier.

    >>> from penstock.testing import try_out
    >>> try_out(lambda s: s.group_by_key().aggregate(top(2)), [("a", 3), ("a", 5), ("a", 4)])
    [('a', [3]), ('a', [5, 3]), ('a', [5, 4])]
    """
    if size < 1:
        raise TopologyError(f"top({size}) keeps no values", hint="Give the number of values to keep, for example 10.")
    return TopAggregator(size, field)


def struct(**parts: BuiltInAggregator) -> StructAggregator:
    """Combine several aggregators: the table's values are dicts with one result for each name.

    >>> from penstock.testing import try_out
    >>> totals = struct(orders=count(), spent=sum("amount"), largest=max("amount"))
    >>> try_out(lambda s: s.group_by_key().aggregate(totals), [("a", {"amount": 5}), ("a", {"amount": 2})])
    [('a', {'orders': 1, 'spent': 5, 'largest': 5}), ('a', {'orders': 2, 'spent': 7, 'largest': 5})]
    """
    wrong = [name for name, part in parts.items() if not isinstance(part, BuiltInAggregator)]
    if wrong or not parts:
        raise TopologyError(
            f"struct() takes built-in aggregators; {wrong[0]!r} is not one" if wrong else "struct() has no parts",
            hint='For example agg.struct(orders=agg.count(), spent=agg.sum("amount")).',
        )
    return StructAggregator(tuple(parts.items()))
