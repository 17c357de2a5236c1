"""Joins of two tables on their keys: the verbs of `KTable`."""

from __future__ import annotations

from typing import Any

from penstock.api.handle import Handle, check_kind, same_builder
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Materialized
from penstock.api.serdes import UNKNOWN
from penstock.api.table import KTable
from penstock.topology.functions import Function
from penstock.topology.graph import JoinGraph, ProcessorGraph
from penstock.topology.table_operations import TableJoinKind, TableJoinMerge, TableTableJoin
from penstock.topology.tables import JoinedTable

__all__ = ["join_tables"]


def join_tables(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    joiner: object,
    materialized: Materialized | None,
    name: str | None,
    kind: TableJoinKind,
) -> KTable[Any, Any]:
    """`KTable.join`, `KTable.left_join` and `KTable.outer_join` with a table of the same keys."""
    verb = "join" if kind == "inner" else f"{kind}_join"
    check_kind(right, KTable, verb, "Join with a table; stream.to_table() makes one of a stream.")
    above, other = left._handle, right._handle  # noqa: SLF001
    same_builder(above, other, verb)
    fn = Function.wrap(joiner, verb=verb, allowed=(2, 3))
    names = above.builder.names
    given = None if materialized is None else named(materialized, above.builder, "KTABLE-MERGE-")
    merge = names.processor("KTABLE-MERGE-", name)
    sources = above.sources | other.sources
    above.builder.copartition(sources)
    if kind != "inner":
        left._state.enable_send_old(force=True)  # noqa: SLF001
    if kind == "outer":
        right._state.enable_send_old(force=True)  # noqa: SLF001
    stores = left._state.getter_stores(), right._state.getter_stores()  # noqa: SLF001
    this = names.processor("KTABLE-JOINTHIS-", name, "-join-this")
    that = names.processor("KTABLE-JOINOTHER-", name, "-join-other")
    spec = None if given is None else key_value_spec(given, above.key_serde, UNKNOWN)
    state = JoinedTable(left._state, right._state, spec)  # noqa: SLF001
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
    key = above.key_serde if given is None or given.key_serde is None else given.key_serde
    value = UNKNOWN if given is None or given.value_serde is None else given.value_serde
    return KTable(Handle(above.builder, graph, merge, key, value, sources), state, state.store)
