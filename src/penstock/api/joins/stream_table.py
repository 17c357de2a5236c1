"""Joins of a stream with a table or a global table."""

from __future__ import annotations

from penstock.api.handle import GlobalTableHandle, StreamHandle, TableHandle, same_builder
from penstock.api.joins.build import Join, repartition_for_join
from penstock.api.options import Joined
from penstock.api.serdes import UNKNOWN, for_store
from penstock.base.durations import duration_ms
from penstock.errors import TopologyError
from penstock.topology.building.grace_joins import GraceJoinGraph, not_versioned
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.operations.base import StreamGlobalTableJoin, StreamTableJoin
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec

__all__ = ["join_global_table", "join_table"]


def join_table(stream: StreamHandle, table: TableHandle, join: Join, joined: Joined) -> StreamHandle:
    """Add `KStream.join` or `KStream.left_join` with a table."""
    same_builder(stream, table, join.verb)
    if stream.needs_repartition:
        stream = repartition_for_join(stream, join.name or stream.node, joined.key_serde, joined.value_serde)
    sources = stream.sources | table.sources
    stream.builder.copartition(sources)
    left = join.is_left
    node = stream.builder.names.processor("KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-", join.name)
    uses = table.state.getter_stores()
    key = joined.key_serde if joined.key_serde is not None else stream.key_serde
    buffer: StoreSpec | None = None
    graph: ProcessorGraph
    grace = None if joined.grace is None else duration_ms(joined.grace)
    if grace is not None:
        value = joined.value_serde if joined.value_serde is not None else stream.value_serde
        buffer = StoreSpec(f"{node}-Buffer", "record_buffer", for_store(key), for_store(value), caching=False)

    def operation() -> StreamTableJoin:
        return StreamTableJoin(table.node, join.joiner, left, grace, None if buffer is None else buffer.name)

    if buffer is None or grace is None:
        graph = ProcessorGraph(name=node, operation=operation, uses=uses, keeps_null_keys=left)
    else:
        if table.graph.output_versioned is False:
            raise not_versioned(node, uses)
        graph = GraceJoinGraph(
            name=node, operation=operation, uses=uses, keeps_null_keys=left, buffer=buffer, grace_ms=grace
        )
    stream.builder.add(stream.graph, graph)
    return StreamHandle(stream.builder, graph, node, key, UNKNOWN, sources)


def join_global_table(stream: StreamHandle, table: GlobalTableHandle, join: Join, key: object) -> StreamHandle:
    """Add `KStream.join` or `KStream.left_join` with a global table.

    Args:
        stream: The left side.
        table: The right side.
        join: The joiner and the name.
        key: A function of (value) or (key, value), or an expression, for the table's key.
    """
    if key is None:
        raise TopologyError(
            f"{join.verb}() with a global table has no key",
            hint="Pass a function that returns the key of the table, for example key=lambda value: value['item'].",
            node=join.name,
        )
    selector = Function.wrap(key, verb=f"{join.verb}: key", allowed=(1, 2))
    operation = StreamGlobalTableJoin(table.spec.name, join.joiner, selector, join.is_left)
    # Kafka names inner joins with global tables like left ones.
    node = stream.builder.names.processor("KSTREAM-LEFTJOIN-", join.name)
    graph = ProcessorGraph(name=node, operation=lambda: operation, keeps_null_keys=join.is_left)
    return stream.below(graph, keys=False, values=True)
