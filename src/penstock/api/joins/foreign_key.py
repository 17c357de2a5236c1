"""Joins of two tables by a foreign key: ``KTable.join(..., foreign_key=...)``.

The nodes and names are those of Kafka: the left side sends subscriptions through one internal topic, the right side
responds through another, and the responses that are still valid for the left row are joined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.api.derived_tables import serdes_of
from penstock.api.handle import Handle, TableHandle, same_builder
from penstock.api.joins.build import Join
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Materialized, TableJoined
from penstock.api.serdes import UNKNOWN, for_internal, for_store, for_topic, resolve
from penstock.topology.building.graph import GraphNode, ProcessorGraph, SinkGraph, SourceGraph
from penstock.topology.building.names import Names
from penstock.topology.configured import Wrapping
from penstock.topology.nodes import SourceNode
from penstock.topology.operations.definitions import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    TableSource,
)
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec
from penstock.topology.tables import SourceTable

__all__ = ["ForeignKey", "join_on_foreign_key"]

_PREFIX = "KTABLE-FK-JOIN-"


@dataclass(frozen=True, slots=True)
class _TopicNames:
    """The names of an internal topic and of the nodes that write and read it."""

    topic: str
    sink: str
    source: str


@dataclass(frozen=True, slots=True)
class _Names:
    """All names of a join."""

    subscriptions: _TopicNames
    send: str
    store: str
    receive: str
    join: str
    foreign_join: str
    answers: _TopicNames
    resolver: str
    result: str

    @classmethod
    def make(cls, names: Names, user_name: str | None) -> _Names:
        """Take the names in Kafka's order."""

        def one(prefix: str, suffix: str) -> str:
            return names.processor(prefix, user_name, suffix)

        registration = f"{_PREFIX}SUBSCRIPTION-REGISTRATION-"
        processor = f"{_PREFIX}SUBSCRIPTION-PROCESSOR-"
        subscriptions = one(registration, "-subscription-registration") + "-topic"
        send = one(registration, "-subscription-registration-processor")
        subscription_sink = one("KTABLE-SINK-", "-subscription-registration-sink")
        subscription_source = one("KTABLE-SOURCE-", "-subscription-registration-source")
        store = one(f"{_PREFIX}SUBSCRIPTION-STATE-STORE-", "-subscription-store")
        receive = one(processor, "-subscription-receive")
        join = one(processor, "-subscription-join-foreign")
        foreign_join = one(processor, "-foreign-join-subscription")
        answers = one(f"{_PREFIX}SUBSCRIPTION-RESPONSE-", "-subscription-response") + "-topic"
        answer_sink = one("KTABLE-SINK-", "-subscription-response-sink")
        answer_source = one("KTABLE-SOURCE-", "-subscription-response-source")
        return cls(
            subscriptions=_TopicNames(subscriptions, subscription_sink, subscription_source),
            send=send,
            store=store,
            receive=receive,
            join=join,
            foreign_join=foreign_join,
            answers=_TopicNames(answers, answer_sink, answer_source),
            resolver=one(f"{_PREFIX}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-", "-subscription-response-resolver"),
            result=one(f"{_PREFIX}OUTPUT-", "-result"),
        )


@dataclass(frozen=True, slots=True)
class _Serdes:
    """The serdes of the topics and the store; ``subscription`` and ``response`` wrap a key and a value."""

    primary: Any
    foreign: Any
    value: Any
    subscription: Any
    response: Any

    @classmethod
    def of(cls, left: Handle, right: Handle) -> _Serdes:
        from penstock.serde.foreign_key_messages import ResponseSerde, SubscriptionSerde

        primary, foreign = for_topic(left.key_serde), for_topic(right.key_serde)
        return cls(
            primary,
            foreign,
            for_store(left.value_serde),
            Wrapping(SubscriptionSerde, primary, "key"),
            Wrapping(ResponseSerde, for_internal(right.value_serde), "value"),
        )


@dataclass(frozen=True, slots=True)
class _ByKey:
    """A user's partitioner that gets None in place of the value, as values are internal wrappers."""

    fn: Callable[..., Any]

    def __call__(self, topic: str, key: Any, _value: Any, *others: Any) -> Any:
        return self.fn(topic, key, None, *others)


def _partitioner(fn: Callable[..., Any] | None) -> Function | None:
    if fn is None:
        return None
    wrapped = Function.wrap(fn, verb="TableJoined: partitioner", allowed=(4, 5), expression=False)
    return Function(_ByKey(fn), wrapped.arity, wrapped.name, wrapped.file, wrapped.line)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """The function that extracts the key of the right table from the left one's rows, and the options of the join."""

    extract: Function
    joined: TableJoined

    @classmethod
    def of(cls, extractor: object, joined: TableJoined, verb: str) -> ForeignKey:
        """Wrap the extractor, a function of (value) or (key, value) or an expression."""
        return cls(Function.wrap(extractor, verb=f"{verb}: foreign_key", allowed=(1, 2)), joined)


def join_on_foreign_key(
    above: TableHandle, other: TableHandle, join: Join, key: ForeignKey, materialized: Materialized | None
) -> TableHandle:
    """Add `KTable.join` or `KTable.left_join` with ``foreign_key``."""
    same_builder(above, other, join.verb)
    joined, is_left = key.joined, join.is_left
    other.state.enable_send_old(force=True)
    above.state.enable_send_old(force=True)
    builder = above.builder
    names, serdes = _Names.make(builder.names, joined.name), _Serdes.of(above, other)
    store = StoreSpec(
        names.store,
        "timestamped",
        resolve("bytes"),
        serdes.subscription,
        timestamped=True,
        caching=False,
        holds_hashes=True,
        logs_headers=True,
        hash_serde=serdes.value,
    )

    send = _processor(
        names.send,
        SubscriptionSend(
            key.extract, serdes.primary, serdes.foreign, serdes.value, is_left, above.graph.is_versioned()
        ),
    )
    subscribed = _topic(
        names.subscriptions, serdes.foreign, serdes.subscription, _partitioner(joined.other_partitioner)
    )
    receive = _processor(names.receive, SubscriptionReceive(serdes.foreign, serdes.primary, store.name), own=store)
    subscribed_join = _processor(names.join, SubscriptionJoin(other.node), uses=other.state.getter_stores())
    foreign_join = _processor(
        names.foreign_join,
        ForeignTableJoin(names.receive, serdes.foreign, serdes.primary, store.name, other.graph.is_versioned()),
        own=store,
    )
    answered = _topic(names.answers, serdes.primary, serdes.response, _partitioner(joined.partitioner))
    resolver = _processor(
        names.resolver,
        ResponseJoin(above.node, serdes.value, join.joiner, is_left),
        uses=above.state.getter_stores(),
    )
    result_store = named(materialized, builder, f"{_PREFIX}OUTPUT-")
    key_serde, value_serde = serdes_of(result_store, above.key_serde, UNKNOWN)
    queryable = materialized is not None and materialized.name is not None
    state = SourceTable(key_value_spec(result_store, key_serde, value_serde), materialized=queryable)
    result = ProcessorGraph(
        name=names.result, operation=lambda: TableSource(state.store, state.send_old), own_stores=state.own_stores
    )
    result.output_versioned = result_store.history is not None

    builder.add(above.graph, send)
    builder.add(send, subscribed[0])
    builder.add(*subscribed)
    builder.copartition(other.sources | {names.subscriptions.source})
    builder.add(subscribed[1], receive)
    builder.add(receive, subscribed_join)
    builder.add(other.graph, foreign_join)
    builder.add(subscribed_join, answered[0])
    builder.add(foreign_join, answered[0])
    builder.add(*answered)
    sources = above.sources | {names.answers.source}
    builder.copartition(sources)
    builder.add(answered[1], resolver)
    builder.add(resolver, result)
    queried = result_store.name if queryable else None
    return TableHandle(builder, result, names.result, above.key_serde, value_serde, sources, state, queried)


def _processor(
    name: str, operation: Any, *, own: StoreSpec | None = None, uses: tuple[str, ...] = ()
) -> ProcessorGraph:
    stores = () if own is None else (own,)
    return ProcessorGraph(name=name, operation=lambda: operation, own_stores=lambda: stores, uses=uses)


def _topic(
    names: _TopicNames, key_serde: Any, value_serde: Any, partitioner: Function | None
) -> tuple[GraphNode, GraphNode]:
    """Make the sink and the source of an internal topic."""
    sink = SinkGraph(
        name=names.sink,
        topic=names.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        partitioner=partitioner,
        internal=True,
    )
    source = SourceNode(names.source, (names.topic,), key_serde, value_serde, internal=True)
    return sink, SourceGraph(name=names.source, source=source)
