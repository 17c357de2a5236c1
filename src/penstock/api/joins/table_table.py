"""Joins of two tables on their keys: the verbs of `KTable`."""

from __future__ import annotations

from penstock.api.derived_tables import serdes_of
from penstock.api.handle import TableHandle, same_builder
from penstock.api.joins.build import Join
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Materialized
from penstock.api.serdes import UNKNOWN
from penstock.topology.building.graph import JoinGraph, ProcessorGraph
from penstock.topology.operations.tables import TableJoinMerge, TableTableJoin
from penstock.topology.tables import JoinedTable

__all__ = ["join_tables"]


def join_tables(above: TableHandle, other: TableHandle, join: Join, materialized: Materialized | None) -> TableHandle:
    """Add `KTable.join`, `KTable.left_join` or `KTable.outer_join` with a table of the same keys."""
    same_builder(above, other, join.verb)
    kind, fn, name = join.kind, join.joiner, join.name
    names = above.builder.names
    given = None if materialized is None else named(materialized, above.builder, "KTABLE-MERGE-")
    merge = names.processor("KTABLE-MERGE-", name)
    sources = above.sources | other.sources
    above.builder.copartition(sources)
    if kind != "inner":
        above.state.enable_send_old(force=True)
    if kind == "outer":
        other.state.enable_send_old(force=True)
    stores = above.state.getter_stores(), other.state.getter_stores()
    this = names.processor("KTABLE-JOINTHIS-", name, "-join-this")
    that = names.processor("KTABLE-JOINOTHER-", name, "-join-other")
    spec = None if given is None else key_value_spec(given, above.key_serde, UNKNOWN)
    state = JoinedTable(above.state, other.state, spec)
    parts = (
        ProcessorGraph(
            name=this,
            operation=lambda: TableTableJoin(
                kind, other.node, fn, from_right=False, send_old=state.send_old, versioned=above.graph.is_versioned()
            ),
            uses=stores[1],
            written_parents=(above.node,),
        ),
        ProcessorGraph(
            name=that,
            operation=lambda: TableTableJoin(
                kind, above.node, fn, from_right=True, send_old=state.send_old, versioned=other.graph.is_versioned()
            ),
            uses=stores[0],
            written_parents=(other.node,),
        ),
        ProcessorGraph(
            name=merge,
            operation=lambda: TableJoinMerge(kind, above.node, other.node, fn, state.store, state.send_old),
            own_stores=state.own_stores,
            written_parents=(this, that),
        ),
    )
    graph = JoinGraph(name=merge, parts=parts)
    graph.output_versioned = given is not None and given.history is not None
    above.builder.add((above.graph, other.graph), graph)
    serdes = serdes_of(given, above.key_serde, UNKNOWN)
    return TableHandle(above.builder, graph, merge, *serdes, sources, state, state.store)
