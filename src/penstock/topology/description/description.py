"""The description of a whole topology, as text, JSON and charts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.java_text.hashing import hash_order
from penstock.topology.description.charts import chart_of, dot, mermaid
from penstock.topology.description.java_order import TreeOrder
from penstock.topology.description.nodes import DescribedNode, DescribedSubTopology
from penstock.topology.description.svg import svg
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, parents_of

__all__ = ["TopologyDescription", "describe"]


@dataclass(frozen=True, slots=True)
class TopologyDescription:
    """Kafka's ``TopologyDescription``."""

    subtopologies: tuple[DescribedSubTopology, ...]

    def __str__(self) -> str:
        return "Topologies:\n " + "".join(f"  {sub}" for sub in self.subtopologies)

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain lists and dicts."""
        return {
            "sub_topologies": [
                {"id": sub.id, "global": sub.is_global, "nodes": [_node_dict(n) for n in sub.nodes]}
                for sub in self.subtopologies
            ]
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return the description as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_mermaid(self) -> str:
        """Return the description as a Mermaid flow chart: topics, nodes, stores and their connections."""
        return mermaid(chart_of(self.subtopologies))

    def to_dot(self) -> str:
        """Return the same in the language of Graphviz."""
        return dot(chart_of(self.subtopologies))

    def to_svg(self) -> str:
        """Return the same as a picture."""
        return svg(chart_of(self.subtopologies))


def _node_dict(described: DescribedNode) -> dict[str, Any]:
    facts: dict[str, Any]
    match described.node:
        case SourceNode(topics=topics, pattern=pattern):
            facts = {"type": "source", "topics": list(topics)} | ({"pattern": pattern} if pattern else {})
        case ProcessorNode(stores=stores, operation=operation):
            facts = {"type": "processor", "operation": type(operation).__name__, "stores": list(stores)}
        case SinkNode(topic=topic, topic_fn=topic_fn):
            facts = {"type": "sink", "topic": topic} | ({"topic_function": topic_fn.location} if topic_fn else {})
    return {
        "name": described.node.name,
        **facts,
        "successors": list(described.successors),
        "predecessors": list(described.predecessors),
    }


class _Graph(Protocol):
    """The part of a topology that its description shows."""

    @property
    def nodes(self) -> Mapping[str, Node]: ...

    @property
    def node_groups(self) -> tuple[tuple[str, ...], ...]: ...

    def is_global(self, group: tuple[str, ...]) -> bool: ...


def describe(graph: _Graph) -> TopologyDescription:
    """Describe a topology: its sub-topologies in order of their numbers, each with its nodes in Kafka's order."""
    return TopologyDescription(tuple(_describe(graph, i, group) for i, group in enumerate(graph.node_groups)))


def _describe(graph: _Graph, number: int, group: tuple[str, ...]) -> DescribedSubTopology:
    if graph.is_global(group):
        source, processor = group[0], group[1]
        pair = (
            DescribedNode(graph.nodes[source], (processor,), ()),
            DescribedNode(graph.nodes[processor], (), (source,)),
        )
        return DescribedSubTopology(number, pair, is_global=True)
    parents = {name: parents_of(graph.nodes[name]) for name in group}
    sizes = dict.fromkeys(group, 1)
    order = TreeOrder(sizes)
    successors = {name: order.new_set() for name in group}
    predecessors = {name: order.new_set() for name in group}

    def grow(name: str, by: int) -> None:
        sizes[name] += by
        for parent in predecessors[name].names():
            grow(parent, by)

    # Java links the nodes in the order of a hash map, while the sizes that order the sets still grow.
    for name in hash_order(group):
        for parent in parents[name]:
            predecessors[name].add(parent)
            successors[parent].add(name)
            grow(parent, sizes[name])
    ordered = sorted(group, key=lambda n: (-sizes[n], n))
    nodes = tuple(
        DescribedNode(graph.nodes[n], tuple(successors[n].names()), tuple(predecessors[n].names())) for n in ordered
    )
    return DescribedSubTopology(number, nodes, is_global=False)
