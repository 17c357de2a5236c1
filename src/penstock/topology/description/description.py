"""The description of a whole topology, as text, JSON and charts, in the iteration order of Java's sets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.java_text.hashing import hash_order
from penstock.topology.description.charts import chart_of, dot, mermaid
from penstock.topology.description.nodes import DescribedNode, DescribedSubTopology
from penstock.topology.description.svg import svg
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, parents_of

__all__ = ["TopologyDescription", "TreeOrder", "TreeSet", "describe"]


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


@dataclass(slots=True, eq=False)
class _Entry:
    name: str
    parent: _Entry | None
    left: _Entry | None = None
    right: _Entry | None = None
    red: bool = True


class TreeOrder:
    """The order by larger size, then name. The sizes may change while the sets are filled, as they do in Java."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes

    def before(self, left: str, right: str) -> bool:
        return (-self._sizes[left], left) < (-self._sizes[right], right)

    def new_set(self) -> TreeSet:
        return TreeSet(self)


class TreeSet:
    """A red-black tree, balanced as ``java.util.TreeMap``: with changing sizes its shape decides the order."""

    def __init__(self, order: TreeOrder) -> None:
        self._order = order
        self._root: _Entry | None = None

    def names(self) -> Iterator[str]:
        """Yield the names in order."""
        return iter(list(self._walk(self._root)))

    def _walk(self, entry: _Entry | None) -> Iterator[str]:
        if entry:
            yield from self._walk(entry.left)
            yield entry.name
            yield from self._walk(entry.right)

    def add(self, name: str) -> None:
        at, parent, left = self._root, None, False
        while at:
            if at.name == name:
                return
            parent, left = at, self._order.before(name, at.name)
            at = at.left if left else at.right
        entry = _Entry(name, parent)
        if parent is None:
            self._root = entry
        elif left:
            parent.left = entry
        else:
            parent.right = entry
        self._balance(entry)

    def _balance(self, entry: _Entry) -> None:
        while entry.parent and entry.parent.red and entry.parent.parent:
            parent, grand = entry.parent, entry.parent.parent
            on_left = parent is grand.left
            uncle = grand.right if on_left else grand.left
            if uncle and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                entry = grand
                continue
            if entry is (parent.right if on_left else parent.left):
                self._rotate(parent, left=on_left)
                entry, parent = parent, entry
            parent.red = False
            grand.red = True
            self._rotate(grand, left=not on_left)
        if self._root:
            self._root.red = False

    def _rotate(self, entry: _Entry, *, left: bool) -> None:
        up = entry.right if left else entry.left
        if up is None:
            return
        inner = up.left if left else up.right
        if left:
            entry.right, up.left = inner, entry
        else:
            entry.left, up.right = inner, entry
        if inner:
            inner.parent = entry
        up.parent, parent, entry.parent = entry.parent, entry.parent, up
        if parent is None:
            self._root = up
        elif parent.left is entry:
            parent.left = up
        else:
            parent.right = up
