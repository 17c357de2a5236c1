"""Rewrites of the graph before it is written, in Kafka's order."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import TopologyError
from penstock.topology.graph import GraphNode, RepartitionGraph, SourceGraph, TableSourceGraph

__all__ = ["find_upstream", "merge_sources", "relax_null_keys", "reuse_source_topics", "walk"]


def walk(root: GraphNode) -> list[GraphNode]:
    """All nodes below the root, each once, children after the node that leads to them."""
    seen: dict[GraphNode, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend(reversed(node.children))
    return list(seen)


def find_upstream(node: GraphNode, matches: Callable[[GraphNode], bool]) -> GraphNode | None:
    """The node itself or the nearest one above it that matches, depth first."""
    if matches(node):
        return node
    for parent in node.parents:
        found = parent if matches(parent) else find_upstream(parent, matches)
        if found is not None:
            return found
    return None


def merge_sources(root: GraphNode) -> None:
    """Two streams of the same topics (or the same pattern) become one source."""
    by_topic: dict[str, SourceGraph] = {}
    by_pattern: dict[str, SourceGraph] = {}
    for node in list(root.children):
        if not isinstance(node, SourceGraph):
            continue
        pattern = node.source.pattern
        if pattern is not None:
            main = by_pattern.setdefault(pattern, node)
            if main is not node:
                _absorb(root, main, node)
            continue
        for topic in node.source.topics:
            main = by_topic.setdefault(topic, node)
            if main is node:
                continue
            if set(main.source.topics) != set(node.source.topics):
                raise TopologyError(
                    f"topic {topic!r} is read by {main.name!r} and by {node.name!r}, together with different topics",
                    hint="Read the same set of topics in both, or one topic each.",
                    topic=topic,
                )
            _absorb(root, main, node)


def _absorb(root: GraphNode, main: SourceGraph, other: SourceGraph) -> None:
    if main.source.offset_reset != other.source.offset_reset:
        raise TopologyError(
            f"{main.name!r} and {other.name!r} read the same topics with different offset resets",
            hint="Give both the same offset_reset.",
        )
    for child in list(other.children):
        other.remove_child(child)
        main.add_child(child)
    root.remove_child(other)


def reuse_source_topics(root: GraphNode) -> None:
    """A table's source topic serves as the changelog of its store (``reuse.ktable.source.topics``)."""
    for node in walk(root):
        if isinstance(node, TableSourceGraph):
            node.reuse_source_topic = True


def relax_null_keys(root: GraphNode) -> None:
    """Null keys do not go into a repartition topic, unless a left join somewhere below needs them."""
    needed: set[GraphNode] = set()
    nodes = walk(root)
    pending = [n for n in nodes if n.keeps_null_keys]
    while pending:
        for parent in pending.pop().parents:
            if parent not in needed:
                needed.add(parent)
                pending.append(parent)
    for node in nodes:
        if isinstance(node, RepartitionGraph):
            node.drop_null_keys = node not in needed
