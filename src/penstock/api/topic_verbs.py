"""Topics of streams and tables: their source nodes; ``to``, ``sink_to``, ``repartition`` and ``through``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.api.handle import StreamHandle, option
from penstock.api.options import Consumed, Produced, Repartitioned
from penstock.api.serdes import for_internal, for_topic
from penstock.base.argument_checks import check_mapping
from penstock.base.properties import setting_text
from penstock.errors import TopologyError
from penstock.topology.building.builder import Partitioning
from penstock.topology.building.graph import SinkGraph, SourceGraph
from penstock.topology.building.names import check_name
from penstock.topology.nodes import SourceNode
from penstock.topology.operations.functions import TOPIC_OF, Function
from penstock.topology.timestamp_extractors import extractor_of

if TYPE_CHECKING:
    from penstock.topology.building.builder import GraphBuilder

__all__ = ["connector_settings", "read", "repartition", "source_node", "through", "to_topic", "topic_names"]


def source_node(
    name: str,
    topics: tuple[str, ...],
    consumed: Consumed,
    *,
    pattern: str | None = None,
    global_store: bool = False,
) -> SourceNode:
    """Make the source node of topics, or of those that match a pattern."""
    extract = extractor_of(consumed.timestamp_extractor, "Consumed: timestamp_extractor")
    return SourceNode(
        name,
        topics,
        consumed.key_serde,
        consumed.value_serde,
        pattern,
        extract,
        consumed.offset_reset,
        global_store=global_store,
    )


def read(builder: GraphBuilder, topics: tuple[str, ...], pattern: str | None, consumed: Consumed) -> StreamHandle:
    """Add the source node of a stream of these topics, or of those whose names match a pattern."""
    name = builder.names.processor("KSTREAM-SOURCE-", consumed.name)
    graph = SourceGraph(name=name, source=source_node(name, topics, consumed, pattern=pattern))
    builder.add(builder.root, graph)
    return StreamHandle(builder, graph, name, consumed.key_serde, consumed.value_serde, frozenset({name}))


def topic_names(topic: object, verb: str) -> tuple[str, ...]:
    """Return the names of one topic or of a list."""
    if isinstance(topic, str):
        return (topic,)
    if isinstance(topic, Iterable) and not isinstance(topic, bytes | Mapping):
        return tuple(topic)
    raise TopologyError(
        f"{verb}() takes a topic, a list of topics or a compiled pattern, not {type(topic).__name__} {topic!r}",
        hint='For example "orders", or ["orders", "returns"].',
    )


def partitioner(fn: Callable[..., Any] | None, verb: str) -> Function | None:
    """Wrap the partitioner of a verb."""
    return None if fn is None else Function.wrap(fn, verb=f"{verb}: partitioner", allowed=(4, 5), expression=False)


def to_topic(
    handle: StreamHandle,
    topic: str | Callable[..., str],
    produced: Produced,
    name: str | None,
    connector: tuple[tuple[str, str], ...] = (),
) -> None:
    """Add `KStream.to`; with the settings of a connector `KStream.sink_to`."""
    static = isinstance(topic, str)
    if isinstance(topic, str):
        check_name(topic, "topic")
    elif not callable(topic):
        raise TopologyError(
            f"to() takes the name of a topic, or a function that returns one, not {type(topic).__name__} {topic!r}",
            hint='Write to("name"), or to(lambda key, value: ...).',
        )
    topic_fn = None if static else Function.wrap(topic, verb="to", allowed=(2, 3), passed=TOPIC_OF, expression=False)
    node = handle.builder.names.processor("KSTREAM-SINK-", produced.name or name)
    graph = SinkGraph(
        name=node,
        topic=topic if isinstance(topic, str) else None,
        key_serde=produced.key_serde if produced.key_serde is not None else for_topic(handle.key_serde),
        value_serde=produced.value_serde if produced.value_serde is not None else for_topic(handle.value_serde),
        topic_fn=topic_fn,
        partitioner=partitioner(produced.partitioner, "to"),
        connector=connector,
    )
    handle.builder.add(handle.graph, graph)


def connector_settings(settings: object) -> tuple[tuple[str, str], ...]:
    """Return the settings of `KStream.sink_to` as texts, as Connect has them.

    Raises:
        TopologyError: They are no mapping, name no connector, or a topic.
    """
    texts: dict[str, str] = {}
    for name, value in check_mapping(settings, "sink_to(): the connector").items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            raise TopologyError(
                f"sink_to(): the connector's setting {name!r} is {value!r}",
                hint="Settings are texts, numbers, or True.",
            )
        texts[name] = setting_text(value)
    if not texts.get("connector.class"):
        raise TopologyError(
            "sink_to(): the connector has no connector.class",
            hint='For example {"connector.class": "DeltaSink", "table.uri": "lake/orders"}.',
        )
    for name in ("topics", "topics.regex"):
        if name in texts:
            raise TopologyError(
                f"sink_to(): the connector has {name}", hint="It reads the topic that topic= names, and no other."
            )
    return tuple(texts.items())


def repartition(handle: StreamHandle, options: Repartitioned, name: str | None) -> StreamHandle:
    """Add `KStream.repartition`."""
    prefix = options.name or name or handle.builder.names.processor("KSTREAM-REPARTITION-")
    key = options.key_serde if options.key_serde is not None else handle.key_serde
    value = options.value_serde if options.value_serde is not None else handle.value_serde
    graph = handle.builder.repartition_node(
        prefix,
        for_topic(key),
        for_internal(value),
        Partitioning(partitioner(options.partitioner, "repartition"), options.partitions),
    )
    handle.builder.add(handle.graph, graph)
    return StreamHandle(handle.builder, graph, graph.name, key, value, frozenset({graph.name}))


def through(
    handle: StreamHandle,
    topic: str,
    produced: Produced | None,
    consumed: Consumed | None,
    *,
    materialize_topic: bool,
) -> StreamHandle:
    """Add `KStream.through`."""
    check_name(topic, "topic")
    if not materialize_topic:
        if consumed is not None:
            raise TopologyError(
                "through() has a Consumed, but the internal topic needs none",
                hint="Leave it out, or set materialize_topic=True.",
            )
        options = option(produced, Produced, "through")
        return repartition(
            handle,
            Repartitioned(
                topic, key_serde=options.key_serde, value_serde=options.value_serde, partitioner=options.partitioner
            ),
            None,
        )
    produced = option(produced, Produced, "through")
    to_topic(handle, topic, produced, None)
    if consumed is None:
        key = produced.key_serde if produced.key_serde is not None else for_topic(handle.key_serde)
        value = produced.value_serde if produced.value_serde is not None else for_topic(handle.value_serde)
        consumed = Consumed(key_serde=key, value_serde=value)
    return read(handle.builder, (topic,), None, option(consumed, Consumed, "through"))
