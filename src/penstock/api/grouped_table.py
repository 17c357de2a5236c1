"""KGroupedTable: a table's rows grouped by another key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.api.grouped import aggregate_of
from penstock.api.handle import Handle, name_of
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Grouped, Materialized, Named
from penstock.api.serdes import UNKNOWN, for_internal, for_topic, resolve
from penstock.api.table import KTable
from penstock.topology import operations as ops
from penstock.topology.functions import Function
from penstock.topology.graph import ProcessorGraph, RepartitionGraph
from penstock.topology.tables import DerivedTable, TableState

__all__ = ["KGroupedTable", "group_table"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
Name = str | Named | None


class KGroupedTable(Generic[K, V]):
    """A grouped table: Kafka's ``KGroupedTable``. A changed row leaves its old group and enters the new one."""

    def __init__(self, handle: Handle, topic_name: str | None) -> None:
        self._handle = handle
        self._topic_name = topic_name
        self._shared: RepartitionGraph | None = None

    def count(self, materialized: Materialized | str | None = None, *, name: Name = None) -> KTable[K, int]:
        """Counts the rows of each group.

        >>> from penstock.testing import try_out
        >>> swapped = lambda s: s.to_table().group_by(lambda key, value: (value, key))
        >>> try_out(lambda s: swapped(s).count(), [("a", "x"), ("b", "x"), ("a", "y")])
        [('x', 1), ('x', 2), ('x', 1), ('y', 1)]
        """
        given = Materialized.of(materialized)
        return self._aggregate("KTABLE-AGGREGATE-", ops.Aggregation("count"), given, name, resolve("long"))

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V]:
        """Combines the values of each group: both functions take (aggregate, value)."""
        aggregation = ops.Aggregation(
            "reduce",
            Function.wrap(adder, verb="reduce", allowed=(2,), expression=False),
            subtractor=Function.wrap(subtractor, verb="reduce", allowed=(2,), expression=False),
        )
        given = Materialized.of(materialized)
        return self._aggregate("KTABLE-REDUCE-", aggregation, given, name, self._handle.value_serde)

    def aggregate(
        self,
        initializer: Callable[[], A] | A,
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]:
        """Folds the values of each group: both functions take (key, value, aggregate)."""
        aggregation = aggregate_of(initializer, adder, subtractor=subtractor)
        return self._aggregate("KTABLE-AGGREGATE-", aggregation, Materialized.of(materialized), name, UNKNOWN)

    def _aggregate(
        self,
        prefix: str,
        aggregation: ops.Aggregation,
        given: Materialized | None,
        name: Name,
        value_serde: Any,
    ) -> KTable[Any, Any]:
        above, names = self._handle, self._handle.builder.names
        # Kafka names the store KTABLE-AGGREGATE- for every kind of aggregation.
        store = named(given, above.builder, "KTABLE-AGGREGATE-")
        sink = names.processor("KSTREAM-SINK-", name_of(name), "-sink")
        source = names.processor("KSTREAM-SOURCE-", name_of(name), "-source")
        node = names.processor(prefix, name_of(name))
        if self._shared is None or self._topic_name is None:
            self._shared = self._topic(sink, source, f"{self._topic_name or store.name}-repartition")
        above.builder.add(above.graph, self._shared)
        key = store.key_serde if store.key_serde is not None else above.key_serde
        value = store.value_serde if store.value_serde is not None else value_serde
        spec = key_value_spec(store, key, value)
        state = DerivedTable((), spec)
        graph = ProcessorGraph(
            name=node,
            operation=lambda: ops.TableAggregate(aggregation, spec.name, state.send_old),
            own_stores=state.own_stores,
        )
        graph.output_versioned = spec.kind == "versioned"
        above.builder.add(self._shared, graph)
        handle = Handle(above.builder, graph, node, key, value, frozenset({source}))
        return KTable(handle, state, spec.name if given is not None and given.name is not None else None)

    def _topic(self, sink: str, source: str, topic: str) -> RepartitionGraph:
        from penstock.serde import ChangeSerde

        value = for_internal(self._handle.value_serde)
        return RepartitionGraph(
            name=source,
            topic=topic,
            sink=sink,
            filter=None,
            key_serde=for_topic(self._handle.key_serde),
            value_serde=ChangeSerde(value),
        )


def group_table(table: KTable[Any, Any], fn: Function, grouped: Grouped, name: str | None) -> KGroupedTable[Any, Any]:
    """`KTable.group_by`."""
    above = table._handle  # noqa: SLF001
    given = grouped.name or name
    node = above.builder.names.processor("KTABLE-SELECT-", given)
    state: TableState = table._state  # noqa: SLF001
    graph = ProcessorGraph(name=node, operation=lambda: ops.TableRegroup(fn, above.node, above.graph.is_versioned()))
    above.builder.add(above.graph, graph)
    state.enable_send_old(force=True)
    handle = Handle(
        above.builder,
        graph,
        node,
        grouped.key_serde if grouped.key_serde is not None else UNKNOWN,
        grouped.value_serde if grouped.value_serde is not None else UNKNOWN,
        above.sources,
    )
    return KGroupedTable(handle, given)
