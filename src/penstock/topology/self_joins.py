"""A stream joined with itself needs one store and one probe (``single.store.self.join``)."""

from __future__ import annotations

from penstock.topology.graph import GraphNode
from penstock.topology.optimize import walk
from penstock.topology.stream_joins import StreamJoinGraph

__all__ = ["rewrite_self_joins"]


def rewrite_self_joins(root: GraphNode) -> None:
    """Takes the second `JoinWindow` of every self-join away; of left and outer ones too, as all records match."""
    for node in walk(root):
        if not isinstance(node, StreamJoinGraph) or len(node.parents) != 1:
            continue
        (parent,) = node.parents
        windowed = [child for child in parent.children if child.name == node.other_windowed]
        for child in windowed:
            parent.remove_child(child)
        node.is_self_join = True
