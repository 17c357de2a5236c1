"""StreamsBuilder: where every topology starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.api.dataframes import dataframe_source
from penstock.api.handle import Handle, check_kind, name_of
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Consumed, Materialized, Named
from penstock.api.processing import processor_operation
from penstock.api.sources import read, source_node
from penstock.api.stream import KStream
from penstock.api.table import GlobalKTable, KTable
from penstock.api.topology import Topology
from penstock.errors import TopologyError
from penstock.topology.builder import GraphBuilder
from penstock.topology.dataframes import DataFrameSource, OutputMode
from penstock.topology.graph import StoreGraph, TableSourceGraph
from penstock.topology.names import check_name
from penstock.topology.operations import TableSource
from penstock.topology.stores import StoreSpec
from penstock.topology.tables import SourceTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["StreamsBuilder"]

Name = str | Named | None


class StreamsBuilder:
    """Builds one topology from streams and tables: Kafka's ``StreamsBuilder``.

    >>> builder = StreamsBuilder()
    >>> builder.stream("words").filter(lambda word: word != "").to("kept")
    >>> print(builder.build().describe())
    Topologies:
       Sub-topology: 0
        Source: KSTREAM-SOURCE-0000000000 (topics: [words])
          --> KSTREAM-FILTER-0000000001
        Processor: KSTREAM-FILTER-0000000001 (stores: [])
          --> KSTREAM-SINK-0000000002
          <-- KSTREAM-SOURCE-0000000000
        Sink: KSTREAM-SINK-0000000002 (topic: kept)
          <-- KSTREAM-FILTER-0000000001
    <BLANKLINE>
    <BLANKLINE>
    """

    def __init__(self) -> None:
        self._graph = GraphBuilder()
        self._dataframes: dict[str, DataFrameSource] = {}

    def stream(
        self, topic: str | Sequence[str] | re.Pattern[str], consumed: Consumed | None = None, *, name: Name = None
    ) -> KStream[Any, Any]:
        """A stream of a topic, of several, or of all whose name matches a compiled pattern.

        Args:
            topic: The name, a list of names, or ``re.compile(...)``.
            consumed: Serdes, timestamp extractor and offset reset.
            name: The source node's name.
        """
        options = _named(consumed, name)
        if isinstance(topic, re.Pattern):
            return read(self._graph, (), topic.pattern, options)
        topics = (topic,) if isinstance(topic, str) else tuple(topic)
        if not topics:
            raise TopologyError("stream() reads no topic", hint="Name at least one.")
        for each in topics:
            check_name(each, "topic")
        return read(self._graph, tuple(dict.fromkeys(topics)), None, options)

    def stream_dataframe(
        self,
        df: DataFrame,
        *,
        name: str,
        key: str | Column | None = None,
        value: str | Sequence[str] | Column | None = None,
        timestamp: str | Column | None = None,
        consumed: Consumed | None = None,
        partitions: int | None = None,
        output_mode: OutputMode = "append",
    ) -> KStream[Any, Any]:
        """A stream of the rows of a streaming Spark DataFrame.

        A query of its own writes them, exactly once, to the topic ``<application.id>-<name>-dataframe``, which the
        topology reads; what has been processed is deleted from it. In a test driver the topic is ``<name>-dataframe``.

        Args:
            df: Any streaming DataFrame.
            name: Of the stream; keep it the same from start to start: the DataFrame's progress is kept under it.
            key: A column; None for records without key.
            value: A column, several (a struct), or None for all. Structs, arrays and maps become JSON.
            timestamp: A column of type timestamp, or milliseconds as bigint; None for the time of writing.
            consumed: Serdes in place of those that fit the columns' types; binary columns are taken as they are.
            partitions: Of the topic, when it is created; by default ``num.partitions``.
            output_mode: "update" if ``df`` aggregates without a watermark.
        """
        if name in self._dataframes:
            raise TopologyError(f"two DataFrames are named {name!r}", hint="Give each a name= of its own.")
        options = consumed or Consumed()
        source = dataframe_source(df, name, key, value, timestamp, options, partitions, output_mode)
        self._dataframes[name] = source
        options = replace(options, key_serde=source.key_serde, value_serde=source.value_serde, offset_reset="earliest")
        return read(self._graph, (source.topic,), None, options)

    def table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Any, Any]:
        """A table of a topic: the newest value of each key, null deletes. It has a store if named or needed."""
        options, given = _table_options(topic, consumed, materialized, name)
        store = named(given, self._graph, f"{topic}-")
        names = self._graph.names
        source = names.processor("KSTREAM-SOURCE-", options.name, "-source")
        node = names.processor("KTABLE-SOURCE-", options.name)
        queryable = given is not None and given.name is not None
        state = SourceTable(key_value_spec(store, options.key_serde, options.value_serde), materialized=queryable)
        graph = TableSourceGraph(
            name=node,
            source=source_node(source, (topic,), options),
            operation=lambda: TableSource(state.store, state.send_old),
            own_stores=state.own_stores,
        )
        graph.output_versioned = store.history is not None
        self._graph.add(self._graph.root, graph)
        handle = Handle(self._graph, graph, node, options.key_serde, options.value_serde, frozenset({source}))
        return KTable(handle, state, store.name if queryable else None)

    def global_table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> GlobalKTable[Any, Any]:
        """A table of which every machine has a full copy, for joins by any key (``globalTable``).

        >>> from penstock.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> items = builder.global_table("items")
        >>> named = builder.stream("orders").join(items, lambda _, item: item, key=lambda order: order)
        >>> named.to("named")
        >>> settings = {"default.key.serde": "string", "default.value.serde": "string"}
        >>> with TopologyTestDriver(builder.build(), settings) as driver:
        ...     driver.input_topic("items").pipe("pen", "i1")
        ...     driver.input_topic("orders").pipe("i1", "ann")
        ...     driver.output_topic("named").read_value()
        'pen'
        """
        options, given = _table_options(topic, consumed, materialized, name)
        if given is not None and given.history is not None:
            raise TopologyError("a global table cannot be versioned", hint="Leave out history.", topic=topic)
        store = named(given, self._graph, f"{topic}-")
        names = self._graph.names
        source = names.processor("KSTREAM-SOURCE-", options.name, "-source")
        node = names.processor("KTABLE-SOURCE-", options.name)
        spec = replace(
            key_value_spec(store, options.key_serde, options.value_serde), logging=False, changelog_topic=topic
        )
        graph = TableSourceGraph(
            name=node,
            source=source_node(source, (topic,), options, global_store=True),
            operation=lambda: TableSource(spec.name),
            own_stores=lambda: (spec,),
        )
        self._graph.add(self._graph.root, graph)
        return GlobalKTable(node, spec)

    def add_state_store(self, store: StoreSpec) -> StreamsBuilder:
        """Adds a store for processors to use by name (``addStateStore``); make it with `Stores`."""
        check_kind(store, StoreSpec, "add_state_store", 'Make one with Stores, e.g. Stores.key_value("counts").')
        self._graph.add(self._graph.root, StoreGraph(name=f"store {store.name}", spec=store))
        return self

    def add_global_store(
        self,
        store: StoreSpec,
        topic: str,
        supplier: Callable[[], Any],
        consumed: Consumed | None = None,
        *,
        name: Name = None,
    ) -> StreamsBuilder:
        """Adds a store of which every host has a full copy, kept up to date by a processor (``addGlobalStore``).

        Every processor may read it without being connected to it; only this one may write it.

        Args:
            store: Made with `Stores`; the topic is its changelog.
            topic: The topic whose records keep the store up to date.
            supplier: Makes the processor that puts the records into the store. It forwards nothing.
            consumed: Serdes and timestamp extractor; serdes are the store's unless given.
            name: The processor's name.

        Raises:
            TopologyError: This is no store, or its topic is read by another source.

        >>> from penstock import Processor, Stores
        >>> class Keep(Processor):
        ...     def process(self, record):
        ...         self.context.get_state_store("names").put(record.key, record.value)
        >>> names = Stores.key_value("names", key_serde="string", value_serde="string")
        >>> builder = StreamsBuilder().add_global_store(names, "users", Keep)
        """
        check_kind(store, StoreSpec, "add_global_store", 'Make one with Stores, e.g. Stores.key_value("prices").')
        check_name(topic, "topic")
        options = _named(consumed, name)
        options = replace(
            options,
            key_serde=store.key_serde if options.key_serde is None else options.key_serde,
            value_serde=store.value_serde if options.value_serde is None else options.value_serde,
        )
        names = self._graph.names
        source = names.processor("KSTREAM-SOURCE-", options.name, "-source")
        node = names.processor("KTABLE-SOURCE-", options.name)
        spec = replace(store, logging=False, changelog_topic=topic)
        operation = processor_operation(supplier, "add_global_store", (spec,))
        graph = TableSourceGraph(
            name=node,
            source=source_node(source, (topic,), options, global_store=True),
            operation=lambda: operation,
            own_stores=lambda: (spec,),
        )
        self._graph.add(self._graph.root, graph)
        return self

    def build(self, config: Mapping[str, Any] | None = None) -> Topology:
        """The topology so far. It may be extended node by node; the builder may be used and built again.

        Args:
            config: The application's settings, for ``topology.optimization`` ("none", "all", or rules with commas).
        """
        optimization = (config or {}).get("topology.optimization") or "none"
        return self._graph.build(Topology(dataframes=dict(self._dataframes)), str(optimization))


def _named(consumed: Consumed | None, name: Name) -> Consumed:
    options = consumed or Consumed()
    check_kind(options, Consumed, "stream", "Write Consumed(...), or name= for a name alone.")
    return options if options.name or name is None else replace(options, name=name_of(name))


def _table_options(
    topic: str, consumed: Consumed | None, materialized: Materialized | str | None, name: Name
) -> tuple[Consumed, Materialized | None]:
    """Serdes come from either side; the topic's and the store's are the same."""
    check_name(topic, "topic")
    options, given = _named(consumed, name), Materialized.of(materialized)
    if given is None:
        return options, None
    key = options.key_serde if options.key_serde is not None else given.key_serde
    value = options.value_serde if options.value_serde is not None else given.value_serde
    options = replace(options, key_serde=key, value_serde=value)
    return options, replace(given, key_serde=key, value_serde=value)
