"""From a stream to a table and back: ``KStream.to_table`` and ``KTable.to_stream``."""

from __future__ import annotations

from penstock.api.handle import StreamHandle, TableHandle
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Materialized
from penstock.api.serdes import for_internal, for_topic
from penstock.topology.building.graph import GraphNode, ProcessorGraph
from penstock.topology.operations.base import StreamToTable, TableToStream
from penstock.topology.tables import SourceTable

__all__ = ["stream_of_table", "table_of_stream"]


def table_of_stream(above: StreamHandle, materialized: Materialized | None, name: str | None) -> TableHandle:
    """Add `KStream.to_table`, below a repartition topic if the key has changed."""
    builder = above.builder
    node = builder.names.processor("KSTREAM-TOTABLE-", name)
    queryable = materialized is not None and materialized.name is not None
    store = named(materialized, builder, "KSTREAM-TOTABLE-")
    key = store.key_serde if store.key_serde is not None else above.key_serde
    value = store.value_serde if store.value_serde is not None else above.value_serde
    parent: GraphNode = above.graph
    sources = above.sources
    if above.needs_repartition:
        parent = builder.repartition_node(node, for_topic(key), for_internal(value))
        builder.add(above.graph, parent)
        sources = frozenset({parent.name})
    state = SourceTable(key_value_spec(store, key, value), materialized=queryable)
    graph = ProcessorGraph(
        name=node, operation=lambda: StreamToTable(state.store, state.send_old), own_stores=state.own_stores
    )
    graph.output_versioned = store.history is not None
    builder.add(parent, graph)
    return TableHandle(builder, graph, node, key, value, sources, state, store.name if queryable else None)


def stream_of_table(above: TableHandle, name: str | None) -> StreamHandle:
    """Add `KTable.to_stream`."""
    node = above.builder.names.processor("KTABLE-TOSTREAM-", name)
    graph = ProcessorGraph(name=node, operation=TableToStream)
    above.builder.add(above.graph, graph)
    return StreamHandle(above.builder, graph, node, above.key_serde, above.value_serde, above.sources)
