"""The description of a whole topology, as text, JSON and charts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.topology.description.charts import chart_of, dot, mermaid
from penstock.topology.description.nodes import DescribedNode, DescribedSubTopology
from penstock.topology.description.svg import svg
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode

__all__ = ["TopologyDescription"]


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
