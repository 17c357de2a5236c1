"""Joins of a stream with a table."""

from __future__ import annotations

from typing import Any

from penstock.api.handle import Handle, check_kind, same_builder
from penstock.api.options import Joined
from penstock.api.serdes import UNKNOWN, for_internal, for_topic
from penstock.api.stream import KStream
from penstock.api.table import KTable
from penstock.errors import TopologyError
from penstock.topology.functions import Function
from penstock.topology.graph import ProcessorGraph
from penstock.topology.operations import StreamTableJoin

__all__ = ["join_table", "repartition_for_join"]


def join_table(
    stream: KStream[Any, Any], table: KTable[Any, Any], joiner: object, joined: Joined, name: str | None, *, left: bool
) -> KStream[Any, Any]:
    """`KStream.join` and `KStream.left_join` with a table."""
    verb = "left_join" if left else "join"
    check_kind(table, KTable, verb, "Join with a table; stream.to_table() makes one of a stream.")
    same_builder(stream._handle, table._handle, verb)  # noqa: SLF001
    if joined.grace is not None:
        raise TopologyError(
            f"{verb}() has a grace period, which needs a versioned table", hint="Leave out grace.", node=name
        )
    fn = Function.wrap(joiner, verb=verb, allowed=(2, 3))
    given = joined.name or name
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
    return KStream(Handle(above.builder, shared, made.name, key, value, frozenset({made.name})))


def _join(
    stream: KStream[Any, Any], table: KTable[Any, Any], fn: Function, joined: Joined, name: str | None, *, left: bool
) -> KStream[Any, Any]:
    above, right = stream._handle, table._handle  # noqa: SLF001
    sources = above.sources | right.sources
    above.builder.copartition(sources)
    node = above.builder.names.processor("KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-", name)
    uses = table._state.getter_stores()  # noqa: SLF001
    graph = ProcessorGraph(
        name=node, operation=lambda: StreamTableJoin(right.node, fn, left), uses=uses, keeps_null_keys=left
    )
    above.builder.add(above.graph, graph)
    key = joined.key_serde if joined.key_serde is not None else above.key_serde
    return KStream(Handle(above.builder, graph, node, key, UNKNOWN, sources))
