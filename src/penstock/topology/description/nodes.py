"""Nodes and sub-topologies in the format of ``Topology.describe()``: Kafka's text, character for character."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.java_text.hashing import hash_order
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

__all__ = ["DescribedNode", "DescribedSubTopology"]


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
