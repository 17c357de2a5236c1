"""Tables derived from a stream or from one other table: ``to_table``, ``filter``, ``filter_not`` and ``map_values``."""

from __future__ import annotations

from typing import Any

from penstock.api.handle import StreamHandle, TableHandle
from penstock.api.materialize import key_value_spec, named, optional_spec
from penstock.api.options import Materialized
from penstock.api.serdes import UNKNOWN
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.operations import definitions as ops
from penstock.topology.operations.definitions import StreamToTable, TableToStream
from penstock.topology.operations.functions import Function
from penstock.topology.tables import DerivedTable, SourceTable

__all__ = ["filter_table", "map_table_values", "serdes_of", "stream_of_table", "table_of_stream"]


def table_of_stream(above: StreamHandle, materialized: Materialized | None, name: str | None) -> TableHandle:
    """Add `KStream.to_table`, below a repartition topic if the key has changed."""
    builder = above.builder
    node = builder.names.processor("KSTREAM-TOTABLE-", name)
    queryable = materialized is not None and materialized.name is not None
    store = named(materialized, builder, "KSTREAM-TOTABLE-")
    key = store.key_serde if store.key_serde is not None else above.key_serde
    value = store.value_serde if store.value_serde is not None else above.value_serde
    keyed = above.by_present_key(node, key, value)
    state = SourceTable(key_value_spec(store, key, value), materialized=queryable)
    graph = ProcessorGraph(
        name=node, operation=lambda: StreamToTable(state.store, state.send_old), own_stores=state.own_stores
    )
    graph.output_versioned = store.history is not None
    builder.add(keyed.graph, graph)
    return TableHandle(builder, graph, node, key, value, keyed.sources, state, store.name if queryable else None)


def stream_of_table(above: TableHandle, name: str | None) -> StreamHandle:
    """Add `KTable.to_stream`."""
    node = above.builder.names.processor("KTABLE-TOSTREAM-", name)
    graph = ProcessorGraph(name=node, operation=TableToStream)
    above.builder.add(above.graph, graph)
    return StreamHandle(above.builder, graph, node, above.key_serde, above.value_serde, above.sources)


def filter_table(
    above: TableHandle, fn: Function, materialized: Materialized | None, name: str | None, *, negate: bool
) -> TableHandle:
    """Add `KTable.filter`, or `KTable.filter_not` with ``negate``."""
    spec = optional_spec(materialized, above.builder, "KTABLE-FILTER-", above.key_serde, above.value_serde)
    state = DerivedTable((above.state,), spec)

    def operation() -> ops.Operation:
        return ops.TableFilter(fn, above.node, state.store, negate, state.send_old, above.graph.is_versioned())

    # A parent that keeps a store knows old values: with them no needless tombstones are sent.
    state.send_old = above.state.enable_send_old(force=False)
    node = above.builder.names.processor("KTABLE-FILTER-", name)
    graph = ProcessorGraph(name=node, operation=operation, own_stores=state.own_stores)
    return _add(above, graph, state, materialized, above.value_serde)


def map_table_values(
    above: TableHandle, fn: Function, materialized: Materialized | None, name: str | None
) -> TableHandle:
    """Add `KTable.map_values`."""
    spec = optional_spec(materialized, above.builder, "KTABLE-MAPVALUES-", above.key_serde, UNKNOWN)
    state = DerivedTable((above.state,), spec)
    node = above.builder.names.processor("KTABLE-MAPVALUES-", name)

    def operation() -> ops.Operation:
        return ops.TableMapValues(fn, above.node, state.store, state.send_old)

    graph = ProcessorGraph(name=node, operation=operation, own_stores=state.own_stores)
    return _add(above, graph, state, materialized, UNKNOWN)


def _add(
    above: TableHandle, graph: ProcessorGraph, state: DerivedTable, materialized: Materialized | None, value_serde: Any
) -> TableHandle:
    if materialized is not None and materialized.name is not None:
        graph.output_versioned = materialized.history is not None
    above.builder.add(above.graph, graph)
    serdes = serdes_of(materialized, above.key_serde, value_serde)
    return TableHandle(above.builder, graph, graph.name, *serdes, above.sources, state, state.store)


def serdes_of(materialized: Materialized | None, key_serde: Any, value_serde: Any) -> tuple[Any, Any]:
    """Return the serdes of the store where the user gave them, or else the inherited ones."""
    if materialized is None:
        return key_serde, value_serde
    return (
        materialized.key_serde if materialized.key_serde is not None else key_serde,
        materialized.value_serde if materialized.value_serde is not None else value_serde,
    )
