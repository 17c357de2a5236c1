"""How a stream starts: the source node of ``stream()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.handle import Handle
from penstock.api.options import Consumed
from penstock.api.stream import KStream
from penstock.topology.functions import Function
from penstock.topology.graph import SourceGraph
from penstock.topology.nodes import SourceNode

if TYPE_CHECKING:
    from penstock.topology.builder import GraphBuilder

__all__ = ["read", "source_node"]


def source_node(
    name: str,
    topics: tuple[str, ...],
    consumed: Consumed,
    *,
    pattern: str | None = None,
    global_store: bool = False,
) -> SourceNode:
    """The frozen source of a topic, several, or a pattern."""
    extractor = consumed.timestamp_extractor
    return SourceNode(
        name,
        topics,
        consumed.key_serde,
        consumed.value_serde,
        pattern,
        None
        if extractor is None
        else Function.wrap(extractor, verb="timestamp_extractor", allowed=(1, 2), expression=False),
        consumed.offset_reset,
        global_store=global_store,
    )


def read(builder: GraphBuilder, topics: tuple[str, ...], pattern: str | None, consumed: Consumed) -> KStream[Any, Any]:
    """A stream of these topics."""
    name = builder.names.processor("KSTREAM-SOURCE-", consumed.name)
    graph = SourceGraph(name=name, source=source_node(name, topics, consumed, pattern=pattern))
    builder.add(builder.root, graph)
    return KStream(Handle(builder, graph, name, consumed.key_serde, consumed.value_serde, frozenset({name})))
