"""The merge of several repartition topics after one key change (``merge.repartition.topics``)."""

from __future__ import annotations

from collections.abc import Callable

from penstock.topology.building.graph import GraphNode, RepartitionGraph
from penstock.topology.building.optimize import find_upstream
from penstock.topology.topology import Rewrite

__all__ = ["RepartitionMerger"]


class RepartitionMerger:
    """Notes key changes and the repartition topics that they cause, while the graph grows."""

    def __init__(self) -> None:
        self._by_key_change: dict[GraphNode, dict[RepartitionGraph, None]] = {}
        self._merges: dict[GraphNode, None] = {}
        self.rewrites: list[Rewrite] = []  # kept, as the graph stays rewritten when it is built again

    def note(self, node: GraphNode) -> None:
        """Note that a node has been added."""
        if node.changes_key:
            self._by_key_change[node] = {}
        elif isinstance(node, RepartitionGraph) and node.may_merge:
            cause = _key_change_above(node)
            if cause is not None:
                self._by_key_change[cause][node] = None
        elif node.merges:
            self._merges[node] = None

    def apply(
        self, create: Callable[[str, object, object], RepartitionGraph], renamed: Callable[[str, str], None]
    ) -> None:
        """Rewrite the graph.

        Args:
            create: Makes the one repartition node: topic, key serde, value serde.
            renamed: Called with each source node and the one that replaces it.
        """
        self._move_to_merges()
        for cause, replaced in self._by_key_change.items():
            if not replaced:
                continue
            first = next(iter(replaced))
            key = next((n.key_serde for n in replaced if n.key_serde is not None), None)
            value = next((n.value_serde for n in replaced if n.value_serde is not None), None)
            single = create(first.topic, key, value)
            single.priority = cause.priority
            for node in replaced:
                self._replace(node, cause, single)
                renamed(node.name, single.name)
            cause.add_child(single)
            if len(replaced) > 1:
                topics = ", ".join(node.topic for node in replaced)
                self.rewrites.append(
                    Rewrite("merge.repartition.topics", f"repartition topics {topics} are one: {single.topic}")
                )
            replaced.clear()  # done, should the topology be built again

    @staticmethod
    def _replace(node: RepartitionGraph, cause: GraphNode, single: RepartitionGraph) -> None:
        child = find_upstream(node, lambda n: cause in n.parents)
        if child is not None:
            single.add_child(child)
            cause.remove_child(child)
        parents = list(node.parents)
        for below in list(node.children):
            for parent in parents:
                parent.add_child(below)
        for parent in parents:
            parent.remove_child(node)
        for below in list(node.children):
            node.remove_child(below)

    def _move_to_merges(self) -> None:
        causes: dict[GraphNode, list[GraphNode]] = {}
        for merge in self._merges:
            causes[merge] = [
                cause
                for cause, nodes in self._by_key_change.items()
                if all(find_upstream(n, lambda g, m=merge: m in g.parents) for n in nodes)  # type: ignore[misc]
                and find_upstream(merge, lambda g, c=cause: c in g.parents)  # type: ignore[misc]
            ]
        moved: dict[GraphNode, None] = {}
        for merge, found in causes.items():
            together: dict[RepartitionGraph, None] = {}
            for cause in found:
                together.update(self._by_key_change[cause])
                moved[cause] = None
            self._by_key_change[merge] = together
        for cause in moved:
            del self._by_key_change[cause]


def _key_change_above(node: GraphNode) -> GraphNode | None:
    """Return the key change above a node, if no value change comes after it."""
    nearest = find_upstream(node, lambda n: n.changes_key or n.changes_value)
    cause = find_upstream(node, lambda n: n.changes_key)
    return cause if nearest is cause else None
