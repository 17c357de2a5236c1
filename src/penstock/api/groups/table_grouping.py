"""The aggregations of a grouped table, below a repartition topic of its changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.api.groups.aggregations import Fold
from penstock.api.handle import Handle, SharedTopic, TableHandle
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Grouped
from penstock.api.serdes import UNKNOWN, for_internal, for_topic
from penstock.topology.building.graph import ProcessorGraph, RepartitionGraph
from penstock.topology.operations import base as ops
from penstock.topology.operations.functions import Function
from penstock.topology.tables import DerivedTable

__all__ = ["TableGrouping", "group_table"]


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
