"""Joins of two tables by a foreign key: ``KTable.join(..., foreign_key=...)``.

The nodes and names are those of Kafka: the left side sends subscriptions through one internal topic, the right side
answers through another, and the answers that still fit the left row are joined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.api.handle import Handle, check_kind, same_builder
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Materialized, TableJoined
from penstock.api.serdes import UNKNOWN, for_internal, for_topic, resolve
from penstock.api.table import KTable
from penstock.topology.default_serdes import Wrapping
from penstock.topology.foreign_key_operations import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from penstock.topology.functions import Function
from penstock.topology.graph import GraphNode, ProcessorGraph, SinkGraph, SourceGraph
from penstock.topology.names import Names
from penstock.topology.nodes import SourceNode
from penstock.topology.operations import TableSource
from penstock.topology.stores import StoreSpec
from penstock.topology.tables import SourceTable

__all__ = ["join_on_foreign_key"]

_PREFIX = "KTABLE-FK-JOIN-"


@dataclass(frozen=True, slots=True)
class _Names:
    """All names of a join, made in Kafka's order."""

    topic: str
    send: str
    sink: str
    source: str
    store: str
    receive: str
    join: str
    foreign_join: str
    answer_topic: str
    answer_sink: str
    answer_source: str
    resolver: str
    result: str

    @classmethod
    def make(cls, names: Names, given: str | None) -> _Names:
        def one(prefix: str, suffix: str) -> str:
            return names.processor(prefix, given, suffix)

        registration = f"{_PREFIX}SUBSCRIPTION-REGISTRATION-"
        processor = f"{_PREFIX}SUBSCRIPTION-PROCESSOR-"
        return cls(
            topic=one(registration, "-subscription-registration") + "-topic",
            send=one(registration, "-subscription-registration-processor"),
            sink=one("KTABLE-SINK-", "-subscription-registration-sink"),
            source=one("KTABLE-SOURCE-", "-subscription-registration-source"),
            store=one(f"{_PREFIX}SUBSCRIPTION-STATE-STORE-", "-subscription-store"),
            receive=one(processor, "-subscription-receive"),
            join=one(processor, "-subscription-join-foreign"),
            foreign_join=one(processor, "-foreign-join-subscription"),
            answer_topic=one(f"{_PREFIX}SUBSCRIPTION-RESPONSE-", "-subscription-response") + "-topic",
            answer_sink=one("KTABLE-SINK-", "-subscription-response-sink"),
            answer_source=one("KTABLE-SOURCE-", "-subscription-response-source"),
            resolver=one(f"{_PREFIX}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-", "-subscription-response-resolver"),
            result=one(f"{_PREFIX}OUTPUT-", "-result"),
        )


@dataclass(frozen=True, slots=True)
class _Serdes:
    """What travels and what is kept; ``subscription`` and ``response`` wrap a key and a value."""

    primary: Any
    foreign: Any
    value: Any
    subscription: Any
    response: Any

    @classmethod
    def of(cls, left: Handle, right: Handle) -> _Serdes:
        from penstock.serde.subscription_serdes import ResponseSerde, SubscriptionSerde

        primary, foreign = for_topic(left.key_serde), for_topic(right.key_serde)
        return cls(
            primary,
            foreign,
            for_internal(left.value_serde),
            Wrapping(SubscriptionSerde, primary, "key"),
            Wrapping(ResponseSerde, for_internal(right.value_serde), "value"),
        )


@dataclass(frozen=True, slots=True)
class _ByKey:
    """A partitioner that is not shown the value, which is a wrapper that means nothing to users."""

    fn: Callable[..., int]

    def __call__(self, topic: str, key: Any, _value: Any, partitions: int) -> int:
        return self.fn(topic, key, None, partitions)


def _partitioner(fn: Callable[..., int] | None) -> Function | None:
    if fn is None:
        return None
    wrapped = Function.wrap(fn, verb="TableJoined: partitioner", allowed=(4,), expression=False)
    return Function(_ByKey(fn), 4, wrapped.name, wrapped.file, wrapped.line)


def join_on_foreign_key(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    extractor: object,
    joiner: object,
    joined: TableJoined,
    materialized: Materialized | None,
    *,
    is_left: bool,
) -> KTable[Any, Any]:
    """`KTable.join` and `KTable.left_join` with ``foreign_key``."""
    verb = "left_join" if is_left else "join"
    check_kind(right, KTable, verb, "Join with a table; stream.to_table() makes one of a stream.")
    above, other = left._handle, right._handle  # noqa: SLF001
    same_builder(above, other, verb)
    extract = Function.wrap(extractor, verb=f"{verb}: foreign_key", allowed=(1, 2))
    fn = Function.wrap(joiner, verb=verb, allowed=(2, 3))
    right._state.enable_send_old(force=True)  # noqa: SLF001
    left._state.enable_send_old(force=True)  # noqa: SLF001
    builder = above.builder
    names, serdes = _Names.make(builder.names, joined.name), _Serdes.of(above, other)
    store = StoreSpec(
        names.store, "timestamped", resolve("bytes"), serdes.subscription, timestamped=True, caching=False
    )

    send = _processor(
        names.send,
        SubscriptionSend(extract, serdes.primary, serdes.foreign, serdes.value, is_left, above.graph.is_versioned()),
    )
    subscribed = _topic(
        names.topic,
        names.sink,
        names.source,
        serdes.foreign,
        serdes.subscription,
        _partitioner(joined.other_partitioner),
    )
    receive = _processor(names.receive, SubscriptionReceive(serdes.foreign, serdes.primary, store.name), own=store)
    join = _processor(names.join, SubscriptionJoin(other.node), uses=right._state.getter_stores())  # noqa: SLF001
    foreign_join = _processor(
        names.foreign_join,
        ForeignTableJoin(names.receive, serdes.foreign, serdes.primary, store.name, other.graph.is_versioned()),
        own=store,
    )
    answered = _topic(
        names.answer_topic,
        names.answer_sink,
        names.answer_source,
        serdes.primary,
        serdes.response,
        _partitioner(joined.partitioner),
    )
    resolver = _processor(
        names.resolver,
        ResponseJoin(above.node, serdes.value, fn, is_left),
        uses=left._state.getter_stores(),  # noqa: SLF001
    )
    given = named(materialized, builder, f"{_PREFIX}OUTPUT-")
    key = above.key_serde if given.key_serde is None else given.key_serde
    value = UNKNOWN if given.value_serde is None else given.value_serde
    queryable = materialized is not None and materialized.name is not None
    state = SourceTable(key_value_spec(given, key, value), materialized=queryable)
    result = ProcessorGraph(
        name=names.result, operation=lambda: TableSource(state.store, state.send_old), own_stores=state.own_stores
    )
    result.output_versioned = given.history is not None

    builder.add(above.graph, send)
    builder.add(send, subscribed[0])
    builder.add(*subscribed)
    builder.copartition(other.sources | {names.source})
    builder.add(subscribed[1], receive)
    builder.add(receive, join)
    builder.add(other.graph, foreign_join)
    builder.add(join, answered[0])
    builder.add(foreign_join, answered[0])
    builder.add(*answered)
    sources = above.sources | {names.answer_source}
    builder.copartition(sources)
    builder.add(answered[1], resolver)
    builder.add(resolver, result)
    handle = Handle(builder, result, names.result, above.key_serde, value, sources)
    return KTable(handle, state, given.name if queryable else None)


def _processor(
    name: str, operation: Any, *, own: StoreSpec | None = None, uses: tuple[str, ...] = ()
) -> ProcessorGraph:
    stores = () if own is None else (own,)
    return ProcessorGraph(name=name, operation=lambda: operation, own_stores=lambda: stores, uses=uses)


def _topic(
    topic: str, sink: str, source: str, key_serde: Any, value_serde: Any, partitioner: Function | None
) -> tuple[GraphNode, GraphNode]:
    """The sink and the source of an internal topic."""
    return (
        SinkGraph(
            name=sink,
            topic=topic,
            key_serde=key_serde,
            value_serde=value_serde,
            partitioner=partitioner,
            internal=True,
        ),
        SourceGraph(name=source, source=SourceNode(source, (topic,), key_serde, value_serde, internal=True)),
    )
