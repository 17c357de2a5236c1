"""Rewrites of the graph before it is written, in Kafka's order."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import TopologyError
from penstock.topology.building.graph import GraphNode, RepartitionGraph, SourceGraph, TableSourceGraph

__all__ = ["find_upstream", "merge_sources", "relax_null_keys", "reuse_source_topics", "walk"]


def walk(root: GraphNode) -> list[GraphNode]:
    """Return all nodes below the root, each once, children after the node that leads to them."""
    seen: dict[GraphNode, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend(reversed(node.children))
    return list(seen)


def find_upstream(node: GraphNode, matches: Callable[[GraphNode], bool]) -> GraphNode | None:
    """Return the node itself or the nearest one above it that matches, depth first."""
    if matches(node):
        return node
    for parent in node.parents:
        match = parent if matches(parent) else find_upstream(parent, matches)
        if match is not None:
            return match
    return None


def merge_sources(root: GraphNode) -> None:
    """Merge the sources of two streams of the same topics (or the same pattern)."""
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
    for what, one, two in (
        ("key serdes", main.source.key_serde, other.source.key_serde),
        ("value serdes", main.source.value_serde, other.source.value_serde),
        ("timestamp extractors", _function(main), _function(other)),
    ):
        if one is not None and two is not None and _identity(one) != _identity(two):
            raise TopologyError(
                f"{main.name!r} and {other.name!r} read the same topics with different {what}: {_shown(one)} and "
                f"{_shown(two)}",
                hint="They become one source, so give both the same, or read the topic once and map its values.",
            )
    for child in list(other.children):
        other.remove_child(child)
        main.add_child(child)
    root.remove_child(other)


def _function(node: SourceGraph) -> object:
    extractor = node.source.timestamp_extractor
    return None if extractor is None else extractor.fn


def _identity(reader: object) -> object:
    """Return the identity of a serde or function: its kind and name, or else the object itself."""
    name = getattr(reader, "name", None)
    return (type(reader), name) if name is not None else id(reader)


def _shown(reader: object) -> str:
    return str(getattr(reader, "name", None) or getattr(reader, "__qualname__", None) or reader)


def reuse_source_topics(root: GraphNode) -> None:
    """Let a table's source topic serve as the changelog of its store (``reuse.ktable.source.topics``)."""
    for node in walk(root):
        if isinstance(node, TableSourceGraph):
            node.reuse_source_topic = True


def relax_null_keys(root: GraphNode) -> None:
    """Keep null keys out of repartition topics, unless a left join somewhere below needs them."""
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
