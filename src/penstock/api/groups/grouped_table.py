"""KGroupedTable: a table's rows grouped by another key, and their aggregations below a repartition topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, overload

from penstock.api.groups.aggregations import Fold, aggregate_of
from penstock.api.handle import Fluent, Handle, SharedTopic, TableHandle, name_of
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Grouped, Materialized, Named
from penstock.api.serdes import UNKNOWN, for_internal, for_topic, resolve
from penstock.api.table import KTable
from penstock.base.argument_checks import check_given
from penstock.base.java_names import with_java_names
from penstock.topology.building.graph import ProcessorGraph, RepartitionGraph
from penstock.topology.operations import base as ops
from penstock.topology.operations.functions import Function
from penstock.topology.tables import DerivedTable

__all__ = ["KGroupedTable", "TableGrouping", "group_table"]


@dataclass(frozen=True, slots=True, eq=False)
class TableGrouping:
    """The place of all aggregations of one grouped table."""

    rows: Handle
    topic_name: str | None
    topic: SharedTopic = field(default_factory=SharedTopic, init=False)

    def fold(self, fold: Fold) -> TableHandle:
        """Add an aggregation below the repartition topic."""
        above, names = self.rows, self.rows.builder.names
        # Kafka names the store KTABLE-AGGREGATE- for every kind of aggregation.
        store = named(fold.materialized, above.builder, "KTABLE-AGGREGATE-")
        sink = names.processor("KSTREAM-SINK-", fold.name, "-sink")
        source = names.processor("KSTREAM-SOURCE-", fold.name, "-source")
        node = names.processor(f"KTABLE-{fold.verb}-", fold.name)
        new_topic = self._make_topic(sink, source, f"{self.topic_name or store.name}-repartition")
        topic = self.topic.choose(new_topic, share=self.topic_name is not None)
        above.builder.add(above.graph, topic)
        key = store.key_serde if store.key_serde is not None else above.key_serde
        value = store.value_serde if store.value_serde is not None else fold.value_serde
        spec = key_value_spec(store, key, value)
        state = DerivedTable((), spec)
        graph = ProcessorGraph(
            name=node,
            operation=lambda: ops.TableAggregate(fold.aggregation, spec.name, state.send_old),
            own_stores=state.own_stores,
        )
        graph.output_versioned = spec.kind == "versioned"
        above.builder.add(topic, graph)
        queried = spec.name if fold.queryable else None
        return TableHandle(above.builder, graph, node, key, value, frozenset({source}), state, queried)

    def _make_topic(self, sink: str, source: str, topic: str) -> RepartitionGraph:
        from penstock.serde import ChangeSerde

        return RepartitionGraph(
            name=source,
            topic=topic,
            sink=sink,
            filter=None,
            key_serde=for_topic(self.rows.key_serde),
            value_serde=ChangeSerde(for_internal(self.rows.value_serde)),
        )


def group_table(above: TableHandle, fn: Function, grouped: Grouped, name: str | None) -> TableGrouping:
    """Add `KTable.group_by`."""
    user_name = grouped.name or name
    node = above.builder.names.processor("KTABLE-SELECT-", user_name)
    graph = ProcessorGraph(name=node, operation=lambda: ops.TableRegroup(fn, above.node, above.graph.is_versioned()))
    above.builder.add(above.graph, graph)
    above.state.enable_send_old(force=True)
    key = grouped.key_serde if grouped.key_serde is not None else UNKNOWN
    value = grouped.value_serde if grouped.value_serde is not None else UNKNOWN
    return TableGrouping(Handle(above.builder, graph, node, key, value, above.sources), user_name)


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
