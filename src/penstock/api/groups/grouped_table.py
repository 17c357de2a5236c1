"""KGroupedTable: a table's rows grouped by another key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, overload

from penstock.api.groups.aggregations import Fold, aggregate_of
from penstock.api.groups.table_grouping import TableGrouping
from penstock.api.handle import Fluent, name_of
from penstock.api.options import Materialized, Named
from penstock.api.serdes import resolve
from penstock.api.table import KTable
from penstock.base.argument_checks import check_given
from penstock.base.java_names import with_java_names
from penstock.topology.operations import base as ops
from penstock.topology.operations.functions import Function

__all__ = ["KGroupedTable"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
Name = str | Named | None


@with_java_names
class KGroupedTable(Fluent[TableGrouping], Generic[K, V]):
    """A grouped table: Kafka's ``KGroupedTable``. A changed row leaves its old group and enters the new one."""

    def count(self, materialized: Materialized | str | None = None, *, name: Name = None) -> KTable[K, int]:
        """Count the rows of each group.

        >>> from penstock.testing import try_out
        >>> swapped = lambda s: s.to_table().group_by(lambda key, value: (value, key))
        >>> try_out(lambda s: swapped(s).count(), [("a", "x"), ("b", "x"), ("a", "y")])
        [('x', 1), ('x', 2), ('x', 1), ('y', 1)]
        """
        fold = Fold(ops.Aggregation("count"), Materialized.of(materialized), name_of(name), resolve("long"))
        return KTable(self._handle.fold(fold))

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V]:
        """Combine the values of each group; both functions take (aggregate, value).

        Args:
            adder: Adds the value of a row that entered the group.
            subtractor: Removes the value of a row that left the group.
            materialized: The store of the result.
            name: The name of the processors.
        """
        aggregation = ops.Aggregation(
            "reduce",
            Function.wrap(adder, verb="reduce", allowed=(2,), expression=False),
            subtractor=Function.wrap(subtractor, verb="reduce: subtractor", allowed=(2,), expression=False),
        )
        value_serde = self._handle.rows.value_serde
        return KTable(self._handle.fold(Fold(aggregation, Materialized.of(materialized), name_of(name), value_serde)))

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]: ...

    @overload
    def aggregate(
        self,
        initializer: A,
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]: ...

    def aggregate(
        self,
        initializer: Callable[[], A] | A,
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]:
        """Aggregate the values of each group; both functions take (key, value, aggregate).

        Args:
            initializer: The first aggregate: a constant, or a function that makes it.
            adder: Adds the value of a row that entered the group.
            subtractor: Removes the value of a row that left the group.
            materialized: The store of the result.
            name: The name of the processors.
        """
        check_given(subtractor, Callable, "aggregate(): subtractor", "a function", "It undoes what the adder did.")  # type: ignore[arg-type]
        aggregation = aggregate_of(initializer, adder, subtractor=subtractor)
        return KTable(self._handle.fold(Fold(aggregation, Materialized.of(materialized), name_of(name))))
