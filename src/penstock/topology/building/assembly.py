"""Collects finished nodes into a Topology and checks them: Kafka's ``InternalTopologyBuilder``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from penstock.errors import TopologyError
from penstock.topology.configured import check_fields
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, parents_of
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import InternalTopic, Rewrite, Topology

__all__ = ["Assembly"]

T = TypeVar("T", bound=Topology)


@dataclass
class Assembly:
    """Nodes in order of addition, parents first; the order decides which child is called first."""

    nodes: dict[str, Node] = field(default_factory=dict)
    stores: dict[str, StoreSpec] = field(default_factory=dict)
    global_stores: set[str] = field(default_factory=set)
    internal_topics: dict[str, InternalTopic] = field(default_factory=dict)
    rewrites: list[Rewrite] = field(default_factory=list)

    @classmethod
    def of(cls, topology: Topology) -> Assembly:
        """Return an assembly with the contents of a finished topology, to be extended."""
        return cls(
            dict(topology.nodes),
            dict(topology.stores),
            set(topology.global_stores),
            dict(topology.internal_topics),
            list(topology.rewrites),
        )

    def add(self, node: Node) -> None:
        """Add a node.

        Raises:
            TopologyError: The name or one of its topics is taken, or a parent is unknown or a sink.
        """
        if node.name in self.nodes:
            raise TopologyError(
                f"two nodes are named {node.name!r}", hint="Give each verb a name= of its own.", node=node.name
            )
        for parent in parents_of(node):
            if parent == node.name:
                raise TopologyError(
                    f"node {node.name!r} is its own parent",
                    hint="Nodes form no cycles; write to a topic and read that for a loop.",
                    node=node.name,
                )
            if parent not in self.nodes:
                raise TopologyError(
                    f"node {node.name!r} has the parent {parent!r}, which is not there",
                    hint="Add parents before their children." + _known("Nodes", self.nodes),
                    node=node.name,
                )
            if isinstance(self.nodes[parent], SinkNode):
                raise TopologyError(f"the sink {parent!r} cannot be a parent of {node.name!r}", node=node.name)
        if isinstance(node, SourceNode):
            self._check_topics(node)
        elif not node.parents:
            raise TopologyError(f"node {node.name!r} has no parent", hint="Name at least one.", node=node.name)
        self.nodes[node.name] = node

    def _check_topics(self, source: SourceNode) -> None:
        for other in self.nodes.values():
            taken = _both_read(source, other) if isinstance(other, SourceNode) else set()
            if taken:
                raise TopologyError(
                    f"topic {min(taken)!r} is read by two sources, {other.name!r} and {source.name!r}",
                    hint="Read it once and use that stream or table twice (to_table() makes a table of a stream).",
                    topic=min(taken),
                )

    def add_store(self, spec: StoreSpec, processors: Iterable[str] = (), *, is_global: bool = False) -> None:
        """Add a store, or find that this very one has been added already, and connect it.

        Stores that are made alike are still two: as in Kafka, processors share a store when they are given the same
        object, or the name of one that has been added.

        Raises:
            TopologyError: Another store has the name, or a processor is not there.
        """
        processors = tuple(processors)
        existing_spec = self.stores.get(spec.name)
        if existing_spec is not None and (existing_spec is not spec or is_global or spec.name in self.global_stores):
            kind = "GlobalStateStore" if spec.name in self.global_stores else "StateStore"
            users = [n.name for n in self.nodes.values() if isinstance(n, ProcessorNode) and spec.name in n.stores]
            whose = f" for {', '.join(users)}" if users else ""
            need = f"; {', '.join(processors)} needs its own" if processors else ""
            raise TopologyError(
                f"a different {kind} has already been added with the name {spec.name!r}{whose}{need}",
                hint="Give each store its own name. To share one, make it once with Stores, add it with "
                "add_state_store(), and pass its name to each processor.",
                store=spec.name,
            )
        self.stores[spec.name] = spec
        if is_global:
            self.global_stores.add(spec.name)
        for name in processors:
            self._attach(name, spec.name)

    def connect(self, processor: str, stores: Iterable[str]) -> None:
        """Let a processor use stores that have been added.

        Raises:
            TopologyError: The store or processor is unknown, or the store is global (those need no connection).
        """
        for store in stores:
            if store in self.global_stores:
                raise TopologyError(
                    f"global store {store!r} needs no connection to {processor!r}",
                    hint="Leave it out: every processor may read it.",
                    store=store,
                )
            if store not in self.stores:
                raise TopologyError(
                    f"{processor!r} uses store {store!r}, which is not there",
                    hint="Call add_state_store() first." + _known("Stores", self.stores),
                    store=store,
                )
            self._attach(processor, store)

    def _attach(self, processor: str, store: str) -> None:
        node = self.nodes.get(processor)
        if not isinstance(node, ProcessorNode):
            what = "is not there" if node is None else "is not a processor"
            raise TopologyError(f"store {store!r} cannot be connected to {processor!r}, which {what}", store=store)
        if store not in node.stores:
            self.nodes[processor] = replace(node, stores=(*node.stores, store))

    def set_changelog(self, store: str, topic: str) -> None:
        """Let a source topic serve as the changelog of a store."""
        self.stores[store] = replace(self.stores[store], logging=False, changelog_topic=topic)
        self.rewrites.append(Rewrite("reuse.ktable.source.topics", f"topic {topic} is the changelog of store {store}"))

    def finish(self, empty: T, copartition_groups: Iterable[Iterable[str]] = ()) -> T:
        """Return the frozen topology: the collected parts, put into an empty one."""
        if not any(isinstance(node, SourceNode) for node in self.nodes.values()):
            raise TopologyError("the topology reads no topic", hint='Start with builder.stream("topic").')
        check_fields(self.nodes)
        return self.extended(replace(empty, copartition_groups=tuple(frozenset(g) for g in copartition_groups)))

    def extended(self, topology: T) -> T:
        """Return the topology with the collected parts in place of its own nodes, stores and topics."""
        return replace(
            topology,
            nodes=dict(self.nodes),
            stores=dict(self.stores),
            internal_topics=dict(self.internal_topics),
            global_stores=frozenset(self.global_stores),
            rewrites=tuple(self.rewrites),
        )


def _both_read(source: SourceNode, other: SourceNode) -> set[str]:
    """Return the topics that both read; of two patterns, as in Kafka, the one that is part of the other."""
    taken = set(source.topics) & set(other.topics)
    if source.pattern is not None and other.pattern is not None:
        shorter, longer = sorted((source.pattern, other.pattern), key=len)
        return {shorter} if shorter in longer else set()
    for pattern, topics in ((source.pattern, other.topics), (other.pattern, source.topics)):
        if pattern is not None:
            taken.update(topic for topic in topics if re.fullmatch(pattern, topic))
    return taken


def _known(what: str, names: Iterable[str]) -> str:
    shown = ", ".join(names)
    return f" {what} so far: {shown}." if shown else ""
