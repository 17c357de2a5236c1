"""The source nodes of streams and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.api.handle import StreamHandle
from penstock.api.options import Consumed
from penstock.errors import TopologyError
from penstock.topology.building.graph import SourceGraph
from penstock.topology.nodes import SourceNode
from penstock.topology.operations.functions import EXTRACTED, Function

if TYPE_CHECKING:
    from penstock.topology.building.builder import GraphBuilder

__all__ = ["read", "source_node", "topic_names"]


def source_node(
    name: str,
    topics: tuple[str, ...],
    consumed: Consumed,
    *,
    pattern: str | None = None,
    global_store: bool = False,
) -> SourceNode:
    """Make the source node of topics, or of those that match a pattern."""
    extract, role = None, "Consumed: timestamp_extractor"
    if consumed.timestamp_extractor is not None:
        fn = consumed.timestamp_extractor
        extract = Function.wrap(fn, verb=role, allowed=(1, 2), passed=EXTRACTED, expression=False)
    return SourceNode(
        name,
        topics,
        consumed.key_serde,
        consumed.value_serde,
        pattern,
        extract,
        consumed.offset_reset,
        global_store=global_store,
    )


def read(builder: GraphBuilder, topics: tuple[str, ...], pattern: str | None, consumed: Consumed) -> StreamHandle:
    """Add the source node of a stream of these topics, or of those whose names match a pattern."""
    name = builder.names.processor("KSTREAM-SOURCE-", consumed.name)
    graph = SourceGraph(name=name, source=source_node(name, topics, consumed, pattern=pattern))
    builder.add(builder.root, graph)
    return StreamHandle(builder, graph, name, consumed.key_serde, consumed.value_serde, frozenset({name}))


def topic_names(topic: object, verb: str) -> tuple[str, ...]:
    """Return the names of one topic or of a list."""
    if isinstance(topic, str):
        return (topic,)
    if isinstance(topic, Iterable) and not isinstance(topic, bytes | Mapping):
        return tuple(topic)
    raise TopologyError(
        f"{verb}() takes a topic, a list of topics or a compiled pattern, not {type(topic).__name__} {topic!r}",
        hint='For example "orders", or ["orders", "returns"].',
    )
