"""The implementation of ``Topology.describe()``.

Java's text depends on the order in which its hash maps and tree sets iterate;
`penstock.topology.description.java_order` reproduces that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.topology.description.description import TopologyDescription
from penstock.topology.description.java_order import TreeOrder, hash_order
from penstock.topology.description.nodes import DescribedNode, DescribedSubTopology
from penstock.topology.nodes import Node, parents_of

__all__ = ["describe"]


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
