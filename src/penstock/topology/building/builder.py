"""The growing graph and its way to a Topology: Kafka's ``InternalStreamsBuilder``."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from penstock.errors import TopologyError
from penstock.topology.building.assembly import Assembly
from penstock.topology.building.graph import (
    GraphNode,
    ProcessorGraph,
    RepartitionGraph,
    Root,
    SinkGraph,
    SourceGraph,
    StoreGraph,
    TableSourceGraph,
    find_upstream,
    merge_sources,
    relax_null_keys,
    reuse_source_topics,
    walk,
)
from penstock.topology.building.joins import rewrite_self_joins
from penstock.topology.building.names import Names, check_name
from penstock.topology.operations.functions import Function
from penstock.topology.topology import Rewrite, Topology

__all__ = ["GraphBuilder", "Partitioning", "RepartitionMerger"]

T = TypeVar("T", bound=Topology)
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_OPTIMIZATIONS = ("reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join")


@dataclass(frozen=True)
class Partitioning:
    """The partitioning of a repartition topic: the user's partitioner and number of partitions, if any."""

    partitioner: Function | None = None
    partitions: int | None = None


class GraphBuilder:
    """The state that all streams and tables of one ``StreamsBuilder`` share."""

    def __init__(self) -> None:
        self.names = Names()
        self.root = Root()
        self._priorities = count()
        self._merger = RepartitionMerger()
        self._copartition: list[set[str]] = []
        self._taken: set[str] = set()

    def add(self, parents: GraphNode | Collection[GraphNode], node: GraphNode) -> None:
        """Add a node below its parents (or once more, if it is shared)."""
        if not node.parents:
            # Repartition topics of one name may yet become one, a store may be added twice: writing them shows it.
            if node.name in self._taken and not isinstance(node, RepartitionGraph | StoreGraph):
                raise TopologyError(
                    f"two nodes are named {node.name!r}", hint="Give each verb a name= of its own.", node=node.name
                )
            self._taken.add(node.name)
        for parent in [parents] if isinstance(parents, GraphNode) else parents:
            parent.add_child(node)
            node.priority = next(self._priorities)
            self._merger.note(node)

    def value_serdes(self) -> dict[str, Any]:
        """Return the serdes of the values of the topics that are read or written."""
        serdes: dict[str, Any] = {}
        for node in walk(self.root):
            if isinstance(node, SourceGraph | TableSourceGraph):
                serdes |= dict.fromkeys(node.source.topics, node.source.value_serde)
            elif isinstance(node, SinkGraph) and node.topic is not None:
                serdes.setdefault(node.topic, node.value_serde)
        return serdes

    def copartition(self, sources: Collection[str]) -> None:
        """Note that the topics of these source nodes join each other."""
        self._copartition.append(set(sources))

    def repartition_node(
        self, prefix: str, key_serde: Any, value_serde: Any, partitioning: Partitioning | None = None
    ) -> RepartitionGraph:
        """Create the node of a repartition topic, and use up its three names.

        Args:
            prefix: The topic's name without ``-repartition``.
            key_serde: The serde of keys.
            value_serde: The serde of values.
            partitioning: The partitioning that the user asked for; None: by key, and the topic may be merged with
                others.
        """
        chosen = partitioning or Partitioning()
        topic = prefix if prefix.endswith("-repartition") else f"{prefix}-repartition"
        check_name(topic, "the name of a repartition topic")
        sink, drop, source = (self.names.processor(f"KSTREAM-{what}-") for what in ("SINK", "FILTER", "SOURCE"))
        if not _GENERATED.fullmatch(prefix):
            sink, drop, source = (f"{topic}-{what}" for what in ("sink", "filter", "source"))
        return RepartitionGraph(
            name=source,
            topic=topic,
            sink=sink,
            filter=drop,
            key_serde=key_serde,
            value_serde=value_serde,
            partitioner=chosen.partitioner,
            partitions=chosen.partitions,
            may_merge=partitioning is None,
        )

    def build(self, empty: T, optimization: str = "none", *, heeds_processors: bool = False) -> T:
        """Optimise, write and check the topology. May be called again, also after more verbs.

        Args:
            empty: The topology that takes the nodes.
            optimization: ``topology.optimization``: "none", "all", or a list of Kafka's rules with commas.
            heeds_processors: Whether processors count as changes of keys or values, so that no repartition topic moves
                across them: Kafka's ``__enable.process.processValue.fix__``.
        """
        rules = _rules(optimization)
        merge_sources(self.root)
        if "reuse.ktable.source.topics" in rules:
            reuse_source_topics(self.root)
        if "merge.repartition.topics" in rules:
            if heeds_processors:
                self._merger.heed_processors()
            self._merger.apply(self.repartition_node, self._rename_source)
        if "single.store.self.join" in rules:
            rewrite_self_joins(self.root)
        relax_null_keys(self.root)
        assembly = Assembly(rewrites=list(self._merger.rewrites))
        self._write(assembly)
        return assembly.finish(empty, self._copartition)

    def _rename_source(self, old: str, new: str) -> None:
        for group in self._copartition:
            if old in group:
                group.remove(old)
                group.add(new)

    def _write(self, assembly: Assembly) -> None:
        """Write nodes by priority; a node waits for all its parents (they offer it again)."""
        for node in walk(self.root):
            node.written = False
        ties = count()
        queue: list[tuple[int, int, GraphNode]] = [(self.root.priority, next(ties), self.root)]
        while queue:
            node = heapq.heappop(queue)[2]
            if not node.written and all(parent.written for parent in node.parents):
                node.write(assembly)
                node.written = True
            for child in node.children:
                if not child.written:
                    heapq.heappush(queue, (child.priority, next(ties), child))


def _rules(optimization: str) -> set[str]:
    names = {name.strip() for name in optimization.split(",")}
    if names == {"all"}:
        return set(_OPTIMIZATIONS)
    if names == {"none"}:
        return set()
    unknown = names - set(_OPTIMIZATIONS)
    if unknown:
        raise TopologyError(
            f"topology.optimization has no rule {min(unknown)!r}",
            hint=f'Use "none", "all", or some of {", ".join(_OPTIMIZATIONS)}.',
        )
    return names


class RepartitionMerger:
    """Notes key changes and the repartition topics that they cause, while the graph grows."""

    def __init__(self) -> None:
        self._by_key_change: dict[GraphNode, dict[RepartitionGraph, None]] = {}
        self._merges: dict[GraphNode, None] = {}
        self._noted: list[GraphNode] = []
        self.rewrites: list[Rewrite] = []  # kept, as the graph stays rewritten when it is built again

    def note(self, node: GraphNode) -> None:
        """Note that a node has been added."""
        self._noted.append(node)
        self._classify(node)

    def heed_processors(self) -> None:
        """Let the user's processors count as what changes keys or values, unless the graph has been rewritten."""
        processors = [node for node in self._noted if isinstance(node, ProcessorGraph) and node.may_change]
        if self.rewrites or all(node.changes_key or node.changes_value for node in processors):
            return
        for node in processors:
            node.changes_key, node.changes_value = node.may_change == "key", node.may_change == "value"
        self._by_key_change.clear()
        self._merges.clear()
        for each in self._noted:
            self._classify(each)

    def _classify(self, node: GraphNode) -> None:
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
        for merge, merge_causes in causes.items():
            together: dict[RepartitionGraph, None] = {}
            for cause in merge_causes:
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
