"""Joins of a stream with a table or a global table."""

from __future__ import annotations

from typing import Any

from penstock.api.handle import Handle, check_kind, same_builder
from penstock.api.options import Joined
from penstock.api.serdes import UNKNOWN, for_internal, for_topic
from penstock.api.stream import KStream
from penstock.api.table import GlobalKTable, KTable
from penstock.durations import duration_ms
from penstock.errors import TopologyError
from penstock.topology.functions import Function
from penstock.topology.grace_joins import GraceJoinGraph, not_versioned
from penstock.topology.graph import ProcessorGraph
from penstock.topology.operations import StreamGlobalTableJoin, StreamTableJoin
from penstock.topology.stores import StoreSpec

__all__ = ["join_table", "repartition_for_join"]


def join_table(
    stream: KStream[Any, Any],
    table: KTable[Any, Any] | GlobalKTable[Any, Any],
    joiner: object,
    joined: Joined,
    name: str | None,
    *,
    left: bool,
    key: object = None,
) -> KStream[Any, Any]:
    """`KStream.join` and `KStream.left_join` with a table, or with a global table by the ``key`` of it."""
    verb = "left_join" if left else "join"
    fn = Function.wrap(joiner, verb=verb, allowed=(2, 3))
    given = joined.name or name
    if isinstance(table, GlobalKTable):
        return _join_global(stream, table, fn, key, given, left=left)
    check_kind(table, KTable, verb, "Join with a table; stream.to_table() makes one of a stream.")
    if key is not None:
        raise TopologyError(
            f"{verb}() with a table has a key=, which is for global tables",
            hint="Tables are joined by the record's own key: select_key() before the join, or a global table.",
            node=given,
        )
    same_builder(stream._handle, table._handle, verb)  # noqa: SLF001
    if stream._needs_repartition:  # noqa: SLF001
        prefix = given or stream._handle.node  # noqa: SLF001
        stream = repartition_for_join(stream, prefix, joined.key_serde, joined.value_serde)
    return _join(stream, table, fn, joined, given, left=left)


def repartition_for_join(stream: KStream[Any, Any], prefix: str, key_serde: Any, value_serde: Any) -> KStream[Any, Any]:
    """The stream behind a repartition topic; several joins of one stream share it, unless they name it."""
    above = stream._handle  # noqa: SLF001
    key = key_serde if key_serde is not None else above.key_serde
    value = value_serde if value_serde is not None else above.value_serde
    made = above.builder.repartition_node(prefix, for_topic(key), for_internal(value))
    shared = stream._join_repartition  # noqa: SLF001
    if shared is None or above.node != prefix:
        shared = stream._join_repartition = made  # noqa: SLF001
        above.builder.add(above.graph, made)
    return KStream(Handle(above.builder, shared, made.name, key, value, frozenset({shared.name})))


def _join(
    stream: KStream[Any, Any], table: KTable[Any, Any], fn: Function, joined: Joined, name: str | None, *, left: bool
) -> KStream[Any, Any]:
    above, right = stream._handle, table._handle  # noqa: SLF001
    sources = above.sources | right.sources
    above.builder.copartition(sources)
    node = above.builder.names.processor("KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-", name)
    uses = table._state.getter_stores()  # noqa: SLF001
    key = joined.key_serde if joined.key_serde is not None else above.key_serde
    buffer: StoreSpec | None = None
    graph: ProcessorGraph
    grace = None if joined.grace is None else duration_ms(joined.grace)
    if grace is not None:
        value = joined.value_serde if joined.value_serde is not None else above.value_serde
        buffer = StoreSpec(f"{node}-Buffer", "record_buffer", for_internal(key), for_internal(value), caching=False)

    def operation() -> StreamTableJoin:
        return StreamTableJoin(right.node, fn, left, grace, None if buffer is None else buffer.name)

    if buffer is None or grace is None:
        graph = ProcessorGraph(name=node, operation=operation, uses=uses, keeps_null_keys=left)
    else:
        if right.graph.output_versioned is False:
            raise not_versioned(node, uses)
        graph = GraceJoinGraph(
            name=node, operation=operation, uses=uses, keeps_null_keys=left, buffer=buffer, grace_ms=grace
        )
    above.builder.add(above.graph, graph)
    return KStream(Handle(above.builder, graph, node, key, UNKNOWN, sources))


def _join_global(
    stream: KStream[Any, Any],
    table: GlobalKTable[Any, Any],
    fn: Function,
    key: object,
    name: str | None,
    *,
    left: bool,
) -> KStream[Any, Any]:
    verb = "left_join" if left else "join"
    if key is None:
        raise TopologyError(
            f"{verb}() with a global table has no key",
            hint="Say which of its rows a record needs, for example key=lambda value: value['item'].",
            node=name,
        )
    selector = Function.wrap(key, verb=f"{verb} key", allowed=(1, 2))
    operation = StreamGlobalTableJoin(table._spec.name, fn, selector, left)  # noqa: SLF001
    # Kafka names inner joins with global tables like left ones.
    node = stream._handle.builder.names.processor("KSTREAM-LEFTJOIN-", name)  # noqa: SLF001
    graph = ProcessorGraph(name=node, operation=lambda: operation, keeps_null_keys=left)
    return stream._below(graph, keys=False, values=True)  # noqa: SLF001
