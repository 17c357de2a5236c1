"""The aggregations of a grouped stream, and the repartition topic that they may share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.api.groups.aggregations import Fold
from penstock.api.handle import SharedTopic, StreamHandle, TableHandle, option
from penstock.api.materialize import named
from penstock.api.options import Grouped
from penstock.api.serdes import for_internal, for_topic
from penstock.api.windowed.build import Windowing
from penstock.topology.building.graph import GraphNode, ProcessorGraph, RepartitionGraph
from penstock.topology.tables import AggregatedTable

__all__ = ["Grouping", "group_stream"]


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The place of all aggregations of one grouped stream: Kafka's ``GroupedStreamAggregateBuilder``."""

    stream: StreamHandle
    topic_name: str | None
    topic: SharedTopic = field(default_factory=SharedTopic, init=False)

    def make_topic(self, store: str) -> RepartitionGraph:
        """Make the repartition topic, named by the user or after the store of an aggregation."""
        above = self.stream
        name = self.topic_name or store
        return above.builder.repartition_node(name, for_topic(above.key_serde), for_internal(above.value_serde))

    def fold(self, fold: Fold, windowing: Windowing) -> TableHandle:
        """Add an aggregation, below a repartition topic if the key has changed."""
        above, builder = self.stream, self.stream.builder
        prefix = f"KSTREAM-{fold.verb}-"
        store = named(fold.materialized, builder, prefix)
        node = builder.names.processor(prefix, fold.name)
        key = store.key_serde if store.key_serde is not None else above.key_serde
        value = store.value_serde if store.value_serde is not None else fold.value_serde
        spec = windowing.store(store, key, value)
        parent: GraphNode = above.graph
        sources = above.sources
        if above.needs_repartition:
            # Names are taken for every aggregation, even if a topic named by the user is shared.
            new_topic = self.make_topic(spec.name)
            parent = self.topic.choose(new_topic, share=self.topic_name is not None)
            builder.add(above.graph, parent)
            sources = frozenset({new_topic.name})
        state = AggregatedTable(spec)
        graph = ProcessorGraph(
            name=node,
            operation=lambda: windowing.operation(fold.aggregation, state),
            own_stores=state.own_stores,
        )
        graph.output_versioned = spec.kind == "versioned"
        graph.grace_ms = windowing.grace_ms
        builder.add(parent, graph)
        queried = spec.name if fold.queryable else None
        return TableHandle(builder, graph, node, windowing.keys(key), value, sources, state, queried)


def group_stream(above: StreamHandle, grouped: Grouped | None, name: str | None) -> Grouping:
    """Group a stream by its present key; the serdes of ``grouped`` replace those inherited."""
    options = option(grouped, Grouped, "group_by_key")
    handle = replace(
        above,
        key_serde=options.key_serde if options.key_serde is not None else above.key_serde,
        value_serde=options.value_serde if options.value_serde is not None else above.value_serde,
    )
    return Grouping(handle, options.name or name)
