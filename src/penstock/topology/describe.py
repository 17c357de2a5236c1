"""``Topology.describe()``: Kafka's text character for character, and the same as JSON and as a Mermaid diagram.

Java's text depends on the order in which its hash maps and tree sets hand out names; `penstock.topology.java_order`
reproduces that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.topology.java_order import TreeOrder, hash_order
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from penstock.topology.topology import Topology, parents_of

__all__ = ["DescribedNode", "DescribedSubTopology", "TopologyDescription"]


@dataclass(frozen=True, slots=True)
class DescribedNode:
    """One node with its neighbours, in Kafka's order."""

    node: Node
    successors: tuple[str, ...]
    predecessors: tuple[str, ...]

    def __str__(self) -> str:
        after = ", ".join(self.successors) or "none"
        before = ", ".join(self.predecessors) or "none"
        match self.node:
            case SourceNode(name=name, pattern=pattern, topics=topics):
                shown = pattern if pattern is not None else f"[{', '.join(hash_order(topics))}]"
                return f"Source: {name} (topics: {shown})\n      --> {after}"
            case ProcessorNode(name=name, stores=stores):
                shown = ", ".join(hash_order(stores))
                return f"Processor: {name} (stores: [{shown}])\n      --> {after}\n      <-- {before}"
            case SinkNode(name=name, topic=topic, topic_fn=topic_fn):
                to = f"topic: {topic}" if topic_fn is None else f"extractor class: {topic_fn.name}"
                return f"Sink: {name} ({to})\n      <-- {before}"


@dataclass(frozen=True, slots=True)
class DescribedSubTopology:
    """The nodes of one sub-topology, largest subtree first."""

    id: int
    nodes: tuple[DescribedNode, ...]
    is_global: bool

    def __str__(self) -> str:
        nodes = "".join(f"    {node}\n" for node in self.nodes)
        if self.is_global:
            return f"Sub-topology: {self.id} for global store (will not generate tasks)\n{nodes}"
        return f"Sub-topology: {self.id}\n{nodes}\n"


@dataclass(frozen=True, slots=True)
class TopologyDescription:
    """Kafka's ``TopologyDescription``."""

    subtopologies: tuple[DescribedSubTopology, ...]

    @classmethod
    def of(cls, topology: Topology) -> TopologyDescription:
        return cls(tuple(_describe(topology, i, group) for i, group in enumerate(topology.node_groups)))

    def __str__(self) -> str:
        return "Topologies:\n " + "".join(f"  {sub}" for sub in self.subtopologies)

    def to_dict(self) -> dict[str, Any]:
        """The description as plain lists and dicts."""
        return {
            "sub_topologies": [
                {"id": sub.id, "global": sub.is_global, "nodes": [_node_dict(n) for n in sub.nodes]}
                for sub in self.subtopologies
            ]
        }

    def to_json(self, indent: int | None = 2) -> str:
        """The description as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_mermaid(self) -> str:
        """The description as a Mermaid flow chart: topics, nodes, stores and what connects them."""
        lines = ["flowchart TD"]
        links: list[str] = []
        topics: dict[str, None] = {}
        for sub in self.subtopologies:
            lines.append(f'  subgraph s{sub.id}["Sub-topology: {sub.id}{" (global store)" if sub.is_global else ""}"]')
            for described in sub.nodes:
                node = described.node
                lines.append(f'    {_id(node.name)}["{node.name}"]')
                links += [f"  {_id(node.name)} --> {_id(child)}" for child in described.successors]
                match node:
                    case SourceNode(topics=names, pattern=pattern):
                        for topic in names or (str(pattern),):
                            topics[topic] = None
                            links.append(f"  {_id('topic ' + topic)} --> {_id(node.name)}")
                    case ProcessorNode(stores=stores):
                        for store in stores:
                            lines.append(f'    {_id("store " + store)}[("{store}")]')
                            links.append(f"  {_id(node.name)} -.- {_id('store ' + store)}")
                    case SinkNode(topic=topic_name, topic_fn=topic_fn):
                        target = topic_name if topic_name is not None else topic_fn.name if topic_fn else ""
                        topics[target] = None
                        links.append(f"  {_id(node.name)} --> {_id('topic ' + target)}")
            lines.append("  end")
        lines += [f'  {_id("topic " + topic)}(["{topic}"])' for topic in topics]
        return "\n".join(dict.fromkeys(lines + links)) + "\n"


def _id(name: str) -> str:
    return "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in name)


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


def _describe(topology: Topology, number: int, group: tuple[str, ...]) -> DescribedSubTopology:
    if topology.is_global(group):
        source, processor = group[0], group[1]
        pair = (
            DescribedNode(topology.nodes[source], (processor,), ()),
            DescribedNode(topology.nodes[processor], (), (source,)),
        )
        return DescribedSubTopology(number, pair, is_global=True)
    parents = {name: parents_of(topology.nodes[name]) for name in group}
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
        DescribedNode(topology.nodes[n], tuple(successors[n].names()), tuple(predecessors[n].names())) for n in ordered
    )
    return DescribedSubTopology(number, nodes, is_global=False)
