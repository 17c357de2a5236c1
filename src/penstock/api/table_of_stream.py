"""``KStream.to_table``."""

from __future__ import annotations

from typing import Any

from penstock.api.handle import Handle
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Materialized
from penstock.api.serdes import for_internal, for_topic
from penstock.api.stream import KStream
from penstock.api.table import KTable
from penstock.topology.graph import GraphNode, ProcessorGraph
from penstock.topology.operations import StreamToTable
from penstock.topology.tables import SourceTable

__all__ = ["table_of_stream"]


def table_of_stream(stream: KStream[Any, Any], materialized: Materialized | None, name: str | None) -> KTable[Any, Any]:
    """Adds the table, behind a repartition topic where the key has changed."""
    above = stream._handle  # noqa: SLF001
    builder = above.builder
    node = builder.names.processor("KSTREAM-TOTABLE-", name)
    queryable = materialized is not None and materialized.name is not None
    store = named(materialized, builder, "KSTREAM-TOTABLE-")
    key = store.key_serde if store.key_serde is not None else above.key_serde
    value = store.value_serde if store.value_serde is not None else above.value_serde
    parent: GraphNode = above.graph
    sources = above.sources
    if stream._needs_repartition:  # noqa: SLF001
        parent = builder.repartition_node(node, for_topic(key), for_internal(value))
        builder.add(above.graph, parent)
        sources = frozenset({parent.name})
    state = SourceTable(key_value_spec(store, key, value), materialized=queryable)
    graph = ProcessorGraph(
        name=node, operation=lambda: StreamToTable(state.store, state.send_old), own_stores=state.own_stores
    )
    graph.output_versioned = store.history is not None
    builder.add(parent, graph)
    return KTable(Handle(builder, graph, node, key, value, sources), state, store.name if queryable else None)
