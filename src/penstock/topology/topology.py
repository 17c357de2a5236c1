"""The finished topology: frozen, picklable, the same for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import TopologyError
from penstock.topology.dataframe_source import DataFrameSource
from penstock.topology.description import TopologyDescription, describe
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, parents_of
from penstock.topology.stores import StoreSpec

__all__ = ["InternalTopic", "Rewrite", "SubTopology", "Topology", "internal_topic", "require_topology"]


def internal_topic(application_id: str, name: str) -> str:
    """Return the name in the log of an internal topic."""
    return f"{application_id}-{name}"


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition topic; `internal_topic` is its name in the log.

    ``partitions`` is the number that the user asked for, or None: as many as the largest input has.
    """

    name: str
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A change by ``topology.optimization``: Kafka's name of the rule, and a description."""

    rule: str
    what: str


@dataclass(frozen=True, slots=True)
class SubTopology:
    """Nodes that are connected without a topic between them; a task is one partition of one sub-topology."""

    id: int
    nodes: tuple[str, ...]
    stores: tuple[str, ...]
    source_topics: tuple[str, ...]
    sink_topics: tuple[str, ...]


@dataclass(frozen=True)
class Topology:
    """A finished topology, read-only. `penstock.Topology` is this with the methods that build it.

    Attributes:
        nodes: All nodes by name, in the order in which Kafka adds them.
        stores: The specifications of state stores, by name; those in ``global_stores`` are full copies in every task.
        internal_topics: Repartition topics by logical name.
        copartition_groups: Names of source nodes whose topics must have equal partition counts.
        dataframes: Streaming DataFrames that feed source topics, by name; the DataFrames are not pickled along.
        rewrites: The changes of the optimiser.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    stores: Mapping[str, StoreSpec] = field(default_factory=dict)
    internal_topics: Mapping[str, InternalTopic] = field(default_factory=dict)
    copartition_groups: tuple[frozenset[str], ...] = ()
    global_stores: frozenset[str] = frozenset()
    dataframes: Mapping[str, DataFrameSource] = field(default_factory=dict)
    rewrites: tuple[Rewrite, ...] = ()
    _children: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _groups: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        children: dict[str, list[str]] = {name: [] for name in self.nodes}
        for name, node in self.nodes.items():
            for parent in parents_of(node):
                children[parent].append(name)
        object.__setattr__(self, "_children", {name: tuple(c) for name, c in children.items()})
        object.__setattr__(self, "_groups", _node_groups(self.nodes, self.global_stores))

    def children(self, name: str) -> tuple[str, ...]:
        """Return the names of the nodes that get this node's records, in the order in which they are called."""
        try:
            return self._children[name]
        except KeyError:
            raise TopologyError(
                f"the topology has no node {name!r}", hint=f"Its nodes are {', '.join(self.nodes)}."
            ) from None

    def physical_name(self, topic: str, application_id: str) -> str:
        """Return a topic's name in the log: internal topics have the application's prefix."""
        return internal_topic(application_id, topic) if topic in self.internal_topics else topic

    @property
    def node_groups(self) -> tuple[tuple[str, ...], ...]:
        """Connected nodes, in order of sub-topology number; those of global stores are groups of their own."""
        return self._groups

    def is_global(self, group: tuple[str, ...]) -> bool:
        """Return whether this group of nodes only keeps a global store up to date, and so has no tasks."""
        return any(isinstance(n := self.nodes[name], SourceNode) and n.global_store for name in group)

    @property
    def global_nodes(self) -> frozenset[str]:
        """The nodes that only keep global stores up to date."""
        return frozenset(name for group in self._groups if self.is_global(group) for name in group)

    def subtopologies(self) -> tuple[SubTopology, ...]:
        """Return all sub-topologies that have tasks; Kafka's numbers, in which global stores count too."""
        return tuple(self._subtopology(i, g) for i, g in enumerate(self._groups) if not self.is_global(g))

    def _subtopology(self, number: int, group: tuple[str, ...]) -> SubTopology:
        nodes = [self.nodes[name] for name in group]
        stores = [s for n in nodes if isinstance(n, ProcessorNode) for s in n.stores]
        return SubTopology(
            number,
            group,
            tuple(dict.fromkeys(stores)),
            tuple(t for n in nodes if isinstance(n, SourceNode) for t in n.topics),
            tuple(dict.fromkeys(n.topic for n in nodes if isinstance(n, SinkNode) and n.topic is not None)),
        )

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """The nodes that read topics."""
        return tuple(n for n in self.nodes.values() if isinstance(n, SourceNode))

    @property
    def sinks(self) -> tuple[SinkNode, ...]:
        """The nodes that write topics."""
        return tuple(n for n in self.nodes.values() if isinstance(n, SinkNode))

    def changelog_topics(self) -> dict[str, str]:
        """Store -> logical name of its changelog topic (a source topic where one serves as changelog)."""
        return {
            name: spec.changelog_topic or f"{name}-changelog"
            for name, spec in self.stores.items()
            if spec.is_restorable
        }

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return the picture for notebooks."""
        description = self.describe()
        return {"text/plain": str(description), "text/html": description.to_svg()}

    def describe(self) -> TopologyDescription:
        """Return Kafka's description: ``print(topology.describe())``; also as JSON and Mermaid."""
        return describe(self)


def _node_groups(nodes: Mapping[str, Node], global_stores: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    root = {name: name for name in nodes}

    def find(name: str) -> str:
        while root[name] != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    user: dict[str, str] = {}
    for name, node in nodes.items():
        for parent in parents_of(node):
            root[find(name)] = find(parent)
        for store in node.stores if isinstance(node, ProcessorNode) else ():
            if store not in global_stores:
                root[find(name)] = find(user.setdefault(store, name))
    groups: dict[str, list[str]] = {}
    for name in nodes:
        groups.setdefault(find(name), []).append(name)
    return tuple(tuple(group) for group in groups.values())


def require_topology(topology: object, caller: str) -> None:
    """Raise TopologyError unless this is a topology."""
    if isinstance(topology, Topology):
        return
    hint = "Pass the result of builder.build()."
    if callable(getattr(topology, "build", None)):
        hint = f"Call its build(): {caller}(builder.build(), ...)."
    raise TopologyError(f"{caller}() takes a Topology, not {type(topology).__name__} {topology!r}", hint=hint)
