"""Handles: places in the growing graph, on which the fluent classes are built.

The helpers of this package take handles and return handles; `KStream`, `KTable` and the other fluent classes wrap them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.api.options import Named
from penstock.api.serdes import UNKNOWN, for_internal, for_topic
from penstock.base.argument_checks import check_optional
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import TopologyError
from penstock.topology.building.graph import ProcessorGraph

if TYPE_CHECKING:
    from penstock.topology.building.builder import GraphBuilder
    from penstock.topology.building.graph import GraphNode, RepartitionGraph
    from penstock.topology.operations.definitions import Operation
    from penstock.topology.stores import StoreSpec
    from penstock.topology.tables import TableState

__all__ = [
    "Fluent",
    "GlobalTableHandle",
    "Handle",
    "SharedTopic",
    "StreamHandle",
    "TableHandle",
    "check_kind",
    "handle_of",
    "name_of",
    "option",
    "same_builder",
    "value_serdes",
]

T = TypeVar("T")
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)


class SharedTopic:
    """A repartition topic that several joins or aggregations of the same records may share."""

    def __init__(self) -> None:
        self._graph: RepartitionGraph | None = None

    def choose(self, new_topic: RepartitionGraph, *, share: bool) -> RepartitionGraph:
        """Return the topic made earlier if it is to be shared, or else remember and return the new one."""
        if self._graph is None or not share:
            self._graph = new_topic
        return self._graph


@dataclass(frozen=True, slots=True)
class Handle:
    """A place in the growing graph: Kafka's ``AbstractStream``.

    ``node`` is the name of the processor that sends the records, ``sources`` are the source nodes of its sub-topology.
    """

    builder: GraphBuilder
    graph: GraphNode
    node: str
    key_serde: Any
    value_serde: Any
    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class StreamHandle(Handle):
    """The place of a `KStream`; after a change of the key it needs a repartition before keys can meet."""

    needs_repartition: bool = False
    join_topic: SharedTopic = field(default_factory=SharedTopic, init=False, compare=False, repr=False)

    def then(
        self, prefix: str, name: str | None, operation: Operation, *, keys: bool = False, values: bool = False
    ) -> StreamHandle:
        """Add a processor; ``keys`` and ``values`` say which of them it changes."""
        node = self.builder.names.processor(prefix, name)
        graph = ProcessorGraph(
            name=node, operation=lambda: operation, changes_key=keys, changes_value=values and not keys
        )
        return self.below(graph, keys=keys, values=values)

    def below(self, graph: ProcessorGraph, *, keys: bool, values: bool) -> StreamHandle:
        """Add a graph node, and return the place below it."""
        self.builder.add(self.graph, graph)
        return StreamHandle(
            self.builder,
            graph,
            graph.name,
            UNKNOWN if keys else self.key_serde,
            UNKNOWN if values else self.value_serde,
            self.sources,
            needs_repartition=self.needs_repartition or keys,
        )

    def by_present_key(
        self, prefix: str, key_serde: Any = None, value_serde: Any = None, *, for_join: bool = False
    ) -> StreamHandle:
        """Return the stream partitioned by its present key: below a repartition topic if the key has changed.

        Args:
            prefix: The topic's name without ``-repartition``.
            key_serde: The serde of keys in the topic; None: the inherited one.
            value_serde: The serde of values in the topic; None: the inherited one.
            for_join: Whether the topic serves a join; several joins of one stream share it, unless they name it.
        """
        if not self.needs_repartition:
            return self
        key = key_serde if key_serde is not None else self.key_serde
        value = value_serde if value_serde is not None else self.value_serde
        new_topic = self.builder.repartition_node(prefix, for_topic(key), for_internal(value))
        chosen = self.join_topic.choose(new_topic, share=self.node == prefix) if for_join else new_topic
        if chosen is new_topic:
            self.builder.add(self.graph, new_topic)
        return StreamHandle(self.builder, chosen, new_topic.name, key, value, frozenset({chosen.name}))


@dataclass(frozen=True, slots=True)
class TableHandle(Handle):
    """The place of a `KTable`, with the state of its processor and the store name that the user gave, if any."""

    state: TableState
    store: str | None


@dataclass(frozen=True, slots=True)
class GlobalTableHandle:
    """The processor and the store of a `GlobalKTable`."""

    node: str
    spec: StoreSpec


class Fluent(Generic[H_co]):
    """A class whose verbs extend the graph at a handle."""

    def __init__(self, handle: H_co) -> None:
        self._handle = handle

    def _handle_of(self, other: Fluent[H]) -> H:
        """Return the handle of another fluent object, for the verbs that take one."""
        return other._handle


def handle_of(fluent: Fluent[H]) -> H:
    """Return the handle of a fluent object, for builders of topologies outside of this package."""
    return fluent._handle  # noqa: SLF001 - the class above


class HasGraph(Protocol):
    """A builder of a topology: `StreamsBuilder`."""

    _graph: GraphBuilder


def value_serdes(builder: HasGraph) -> dict[str, Any]:
    """Return the serdes of the values of the topics that a builder has named so far; None is the default serde."""
    return builder._graph.value_serdes()  # noqa: SLF001 - for languages of topologies, as `handle_of`


def name_of(name: str | Named | None) -> str | None:
    """Return the text of ``name=``."""
    check_optional(name, (str, Named), "name", "a text", 'For example name="by-user".')
    return name.name if isinstance(name, Named) else name


def check_kind(value: object, kind: type, verb: str, hint: str) -> None:
    """Raise TopologyError unless the argument of a verb is of this type."""
    if not isinstance(value, kind):
        raise TopologyError(
            f"{verb}() takes {with_article(kind.__name__)}, not {type(value).__name__} {value!r}", hint=hint
        )


def option(options: T | None, kind: type[T], verb: str) -> T:
    """Return the given options, or the defaults for None; raise TopologyError if they are of another type."""
    if options is None:
        return kind()
    check_kind(options, kind, verb, f"Write {kind.__name__}(...).")
    return options


def same_builder(left: Handle, right: Handle, verb: str) -> None:
    """Raise TopologyError when two streams or tables belong to different topologies."""
    if left.builder is not right.builder:
        raise TopologyError(
            f"{verb}(): the two sides belong to different builders", hint="Make both with the same StreamsBuilder."
        )
