"""The aggregation of several grouped streams into one table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from penstock.api.groups.agg import BuiltInAggregator
from penstock.api.groups.aggregations import initial
from penstock.api.groups.grouping import Grouping
from penstock.api.handle import StreamHandle, TableHandle, same_builder
from penstock.api.materialize import named
from penstock.api.options import Materialized
from penstock.api.serdes import UNKNOWN
from penstock.api.windowed.build import Windowing
from penstock.errors import TopologyError
from penstock.topology.building.graph import GraphNode, ProcessorGraph, RepartitionGraph
from penstock.topology.operations.functions import Function
from penstock.topology.operations.tables import CogroupMember, CogroupMerge
from penstock.topology.tables import AggregatedTable

__all__ = ["CogroupFold", "Cogrouping", "cogroup"]

_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"


@dataclass(frozen=True, slots=True)
class CogroupFold:
    """One call of ``aggregate`` on cogrouped streams."""

    initializer: object
    materialized: Materialized | None
    name: str | None
    merger: Function | None = None


@dataclass(frozen=True)
class Cogrouping:
    """The grouped streams with their aggregators, in order; repartition topics are shared by all aggregations."""

    members: tuple[tuple[Grouping, Function], ...]
    topics: dict[int, RepartitionGraph] = field(default_factory=dict)

    @property
    def stream(self) -> StreamHandle:
        """The first of the streams."""
        return self.members[0][0].stream

    def adding(self, grouping: Grouping, aggregator: object) -> Cogrouping:
        """Return the group with one more stream; one that is there already gets the new aggregator."""
        same_builder(self.stream, grouping.stream, "cogroup")
        members = dict(enumerate(self.members))
        at = next((i for i, (one, _) in members.items() if one is grouping), len(members))
        members[at] = (grouping, _aggregator(aggregator))
        return replace(self, members=tuple(members.values()))

    def fold(self, fold: CogroupFold, windowing: Windowing) -> TableHandle:
        """Add a processor for each stream, and the one that merges them (``CogroupedStreamAggregateBuilder``)."""
        first, windows = self.stream, windowing.spec
        builder = first.builder
        store = named(fold.materialized, builder, _AGGREGATE)
        key = store.key_serde if store.key_serde is not None else first.key_serde
        value = store.value_serde if store.value_serde is not None else UNKNOWN
        spec = windowing.store(store, key, value)
        parents = [self._grouped(grouping, spec.name) for grouping, _ in self.members]
        builder.copartition({source for _, sources in parents for source in sources})
        state, base = AggregatedTable(spec), fold.name
        members: list[GraphNode] = []
        for number, (parent, _) in enumerate(parents):
            node = builder.names.processor(_AGGREGATE, base, f"-cogroup-agg-{number}")
            operation = partial(CogroupMember, number, windows)
            graph = ProcessorGraph(name=node, operation=operation, own_stores=state.own_stores)
            graph.output_versioned = spec.kind == "versioned"
            graph.grace_ms = windowing.grace_ms
            builder.add(parent, graph)
            members.append(graph)
        node = builder.names.processor("COGROUPKSTREAM-MERGE-", base, "-cogroup-merge")
        aggregators, start = tuple(fn for _, fn in self.members), initial(fold.initializer)
        merge = ProcessorGraph(
            name=node,
            operation=lambda: CogroupMerge(aggregators, start, spec.name, windows, fold.merger, state.send_old),
        )
        builder.add(members, merge)
        sources = frozenset(source for _, each in parents for source in each)
        queried = spec.name if fold.materialized is not None and fold.materialized.name is not None else None
        return TableHandle(builder, merge, node, windowing.keys(key), value, sources, state, queried)

    def _grouped(self, grouping: Grouping, store: str) -> tuple[GraphNode, frozenset[str]]:
        """Return the node that sends a stream's records by key, and its sources."""
        above = grouping.stream
        if not above.needs_repartition:
            return above.graph, above.sources
        new_topic = grouping.make_topic(store)
        topic = self.topics.get(id(grouping))
        if topic is None:
            above.builder.add(above.graph, new_topic)
            topic = self.topics[id(grouping)] = new_topic
        return topic, frozenset({topic.name})


def cogroup(grouping: Grouping, aggregator: object) -> Cogrouping:
    """Start a cogroup: `KGroupedStream.cogroup`."""
    return Cogrouping(((grouping, _aggregator(aggregator)),))


def _aggregator(aggregator: object) -> Function:
    if isinstance(aggregator, BuiltInAggregator) and not aggregator.is_final:
        raise TopologyError(
            f"cogroup() cannot take the result of {aggregator!r}: other streams change the same aggregate",
            hint="Cogroup what it comes from, such as agg.sum() and agg.count(), and take the result by map_values().",
        )
    return Function.wrap(aggregator, verb="cogroup", allowed=(3,), expression=False)
