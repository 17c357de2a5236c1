"""The graph while it is being built: mutable nodes, which write themselves as frozen ones, and its rewrites.

Some facts are known only at the end (a table is materialised because a later verb needs it, old values are sent
because a later verb needs them), so a graph node makes its frozen nodes when `GraphBuilder.build` asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.errors import TopologyError
from penstock.topology.building.assembly import Assembly
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.definitions import DropNullKeys, Operation, PassThrough
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import InternalTopic

__all__ = [
    "GraphNode",
    "JoinGraph",
    "ProcessorGraph",
    "RepartitionGraph",
    "Root",
    "SinkGraph",
    "SourceGraph",
    "StoreGraph",
    "TableSourceGraph",
    "find_upstream",
    "merge_sources",
    "relax_null_keys",
    "reuse_source_topics",
    "walk",
]


@dataclass(eq=False, kw_only=True)
class GraphNode:
    """One verb. ``priority`` is the order in which the nodes are written."""

    name: str
    changes_key: bool = False
    changes_value: bool = False
    merges: bool = False
    keeps_null_keys: bool = False  # a left join: repartition topics before it must carry null keys
    output_versioned: bool | None = None
    grace_ms: int | None = None  # of windows: how long after its end a window takes records
    priority: int = -1
    written: bool = False
    children: dict[GraphNode, None] = field(default_factory=dict, repr=False)
    parents: dict[GraphNode, None] = field(default_factory=dict, repr=False)

    def add_child(self, child: GraphNode) -> None:
        self.children[child] = None
        child.parents[self] = None

    def remove_child(self, child: GraphNode) -> None:
        self.children.pop(child, None)
        child.parents.pop(self, None)

    @property
    def parent_names(self) -> tuple[str, ...]:
        return tuple(parent.name for parent in self.parents)

    def is_versioned(self) -> bool:
        """Return whether its output is a versioned table: its own store says so, or else all the tables above it."""
        if self.output_versioned is not None:
            return self.output_versioned
        return bool(self.parents) and all(parent.is_versioned() for parent in self.parents)

    def write(self, to: Assembly) -> None:  # noqa: ARG002 - for subclasses
        """Add the frozen nodes."""
        raise TypeError(f"{type(self).__name__} writes nothing")


@dataclass(eq=False, kw_only=True)
class Root(GraphNode):
    """The parent of all sources."""

    name: str = "root"

    def write(self, to: Assembly) -> None:
        """Add nothing."""


@dataclass(eq=False, kw_only=True)
class SourceGraph(GraphNode):
    """The node of ``stream()``."""

    source: SourceNode

    def write(self, to: Assembly) -> None:
        to.add(self.source)


@dataclass(eq=False, kw_only=True)
class ProcessorGraph(GraphNode):
    """Most verbs: one processor, its own stores, and stores of others that it uses."""

    operation: Callable[[], Operation]
    own_stores: Callable[[], tuple[StoreSpec, ...]] = tuple
    uses: tuple[str, ...] = ()
    may_change: Literal["key", "value"] | None = None  # of a processor of the user's
    written_parents: tuple[str, ...] | None = None  # where the graph's parents are not the processor's

    def write(self, to: Assembly) -> None:
        parents = self.parent_names if self.written_parents is None else self.written_parents
        to.add(ProcessorNode(self.name, self.operation(), parents))
        for spec in self.own_stores():
            to.add_store(spec, [self.name])
        to.connect(self.name, self.uses)


@dataclass(eq=False, kw_only=True)
class JoinGraph(GraphNode):
    """A join made of several processors, written together."""

    parts: tuple[ProcessorGraph, ...]

    def write(self, to: Assembly) -> None:
        for part in self.parts:
            to.add(ProcessorNode(part.name, part.operation(), part.written_parents or ()))
            for spec in part.own_stores():
                to.add_store(spec, [part.name])
        for part in self.parts:
            to.connect(part.name, part.uses)


@dataclass(eq=False, kw_only=True)
class TableSourceGraph(GraphNode):
    """The node of ``table()`` and ``global_table()``: a source and the processor that keeps the table."""

    source: SourceNode
    operation: Callable[[], Operation]
    own_stores: Callable[[], tuple[StoreSpec, ...]]
    reuse_source_topic: bool = False

    def write(self, to: Assembly) -> None:
        to.add(self.source)
        to.add(ProcessorNode(self.name, self.operation(), (self.source.name,)))
        for spec in self.own_stores():
            to.add_store(spec, [self.name], is_global=self.source.global_store)
            if self.reuse_source_topic and not self.source.global_store:
                to.set_changelog(spec.name, self.source.topics[0])


@dataclass(eq=False, kw_only=True)
class RepartitionGraph(GraphNode):
    """A repartition topic: filter (unless of a grouped table), sink and source. Named like its source."""

    topic: str
    sink: str
    filter: str | None
    key_serde: Any
    value_serde: Any
    partitioner: Function | None = None
    partitions: int | None = None
    may_merge: bool = False
    drop_null_keys: bool = False

    def write(self, to: Assembly) -> None:
        to.internal_topics.setdefault(self.topic, InternalTopic(self.topic, self.partitions))
        parents = self.parent_names
        if self.filter is not None:
            to.add(ProcessorNode(self.filter, DropNullKeys() if self.drop_null_keys else PassThrough(), parents))
            parents = (self.filter,)
        to.add(
            SinkNode(
                self.sink,
                self.topic,
                self.key_serde,
                self.value_serde,
                parents,
                partitioner=self.partitioner,
                internal=True,
            )
        )
        to.add(SourceNode(self.name, (self.topic,), self.key_serde, self.value_serde, internal=True))


@dataclass(eq=False, kw_only=True)
class SinkGraph(GraphNode):
    """The node of ``to()``."""

    topic: str | None
    key_serde: Any
    value_serde: Any
    topic_fn: Function | None = None
    partitioner: Function | None = None
    internal: bool = False  # the topic is the application's own
    connector: tuple[tuple[str, str], ...] = ()

    def write(self, to: Assembly) -> None:
        if self.internal and self.topic is not None:
            to.internal_topics.setdefault(self.topic, InternalTopic(self.topic))
        to.add(
            SinkNode(
                self.name,
                self.topic,
                self.key_serde,
                self.value_serde,
                self.parent_names,
                self.topic_fn,
                self.partitioner,
                self.internal,
                self.connector,
            )
        )


@dataclass(eq=False, kw_only=True)
class StoreGraph(GraphNode):
    """The node of ``add_state_store()``."""

    spec: StoreSpec

    def write(self, to: Assembly) -> None:
        to.add_store(self.spec)


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
