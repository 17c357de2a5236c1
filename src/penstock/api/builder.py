"""StreamsBuilder: the start of every topology of the DSL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from penstock.api.dataframes import dataframe_source
from penstock.api.handle import GlobalTableHandle, TableHandle, check_kind, name_of, option
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Consumed, KeyOrAny, Materialized, Named, ValueOrAny
from penstock.api.processing.build import processor_operation, wrapped
from penstock.api.stream import KStream
from penstock.api.table import GlobalKTable, KTable
from penstock.api.topic_verbs import read, source_node, topic_names
from penstock.api.topology import Topology
from penstock.base.argument_checks import check_mapping
from penstock.base.extension_points import ExtensionPoint
from penstock.base.java_names import with_java_names
from penstock.errors import ConfigError, TopologyError
from penstock.topology.building.builder import GraphBuilder
from penstock.topology.building.graph import StoreGraph, TableSourceGraph
from penstock.topology.building.names import check_name
from penstock.topology.dataframe_source import DataFrameSource, OutputMode
from penstock.topology.operations.definitions import TableSource
from penstock.topology.stores import StoreSpec
from penstock.topology.tables import SourceTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["LANGUAGES", "Language", "StreamsBuilder"]

Name = str | Named | None


class Language(Protocol):
    """A function that adds what a text says to a topology: Penstock SQL is one, behind `StreamsBuilder.sql`."""

    def __call__(
        self, builder: StreamsBuilder, text: str, session: Any = None
    ) -> KStream[Any, dict[str, Any]] | KTable[Any, dict[str, Any]]:
        """Add the steps of a text; return its result.

        Args:
            builder: The builder of the topology.
            text: The text.
            session: Names that were declared before, in the language's own form.
        """
        ...


LANGUAGES: ExtensionPoint[Language] = ExtensionPoint(
    "penstock.languages", callable, "a function of a StreamsBuilder, a text and a session"
)
"""The languages of topologies, by name; ``sql`` is the one of `StreamsBuilder.sql`."""


@with_java_names
class StreamsBuilder:
    """A builder of one topology from streams and tables: Kafka's ``StreamsBuilder``.

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
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        consumed: Consumed[KeyOrAny, ValueOrAny] | None = None,
        *,
        name: Name = None,
    ) -> KStream[KeyOrAny, ValueOrAny]:
        """Read a topic, several topics, or all whose names match a compiled pattern, as a stream.

        Args:
            topic: The name, a list of names, or ``re.compile(...)``.
            consumed: Serdes, timestamp extractor and offset reset.
            name: The source node's name.
        """
        options = _named(consumed, name)
        if isinstance(topic, re.Pattern):
            return KStream(read(self._graph, (), topic.pattern, options))
        topics = topic_names(topic, "stream")
        if not topics:
            raise TopologyError("stream() reads no topic", hint="Name at least one.")
        for each in topics:
            check_name(each, "topic")
        return KStream(read(self._graph, tuple(dict.fromkeys(topics)), None, options))

    def stream_dataframe(
        self,
        df: DataFrame,
        *,
        name: str,
        key: str | Column | None = None,
        value: str | Sequence[str] | Column | None = None,
        timestamp: str | Column | None = None,
        consumed: Consumed[KeyOrAny, ValueOrAny] | None = None,
        partitions: int | None = None,
        output_mode: OutputMode = "append",
    ) -> KStream[KeyOrAny, ValueOrAny]:
        """Read the rows of a streaming Spark DataFrame as a stream.

        A separate query writes them, exactly once, to the topic ``<application.id>-<name>-dataframe``, which the
        topology reads; records that have been processed are deleted. In a test driver the topic is
        ``<name>-dataframe``.

        Args:
            df: Any streaming DataFrame.
            name: The name of the stream. Do not change it: the progress of the DataFrame is stored under it.
            key: A column; None for records without key.
            value: A column, several (a struct), or None for all. Structs, arrays and maps become JSON.
            timestamp: A column of type timestamp, or milliseconds as bigint; None for the time of writing.
            consumed: Serdes in place of those for the columns' types; binary columns are not encoded.
            partitions: The partition count of the topic when it is created; by default ``num.partitions``.
            output_mode: "update" if ``df`` aggregates without a watermark.
        """
        if name in self._dataframes:
            raise TopologyError(f"two DataFrames are named {name!r}", hint="Give each its own name=.")
        options = option(consumed, Consumed, "stream_dataframe")
        user_source = DataFrameSource(
            name,
            f"{name}-dataframe",
            options.key_serde,
            options.value_serde,
            partitions,
            output_mode,
            key,
            value,
            timestamp,
            df,
        )
        source = dataframe_source(user_source)
        self._dataframes[name] = source
        options = replace(options, key_serde=source.key_serde, value_serde=source.value_serde, offset_reset="earliest")
        return KStream(read(self._graph, (source.topic,), None, options))

    def sql(self, text: str, session: Any = None) -> KStream[Any, dict[str, Any]] | KTable[Any, dict[str, Any]]:
        """Add a SELECT of Penstock SQL, and go on with its result in Python: see `penstock.sql.stream`.

        >>> builder = StreamsBuilder()
        >>> hits = builder.sql('''
        ...     CREATE STREAM hits (page STRING, ms INT) WITH (kafka_topic='hits', value_format='JSON');
        ...     SELECT page, ms FROM hits WHERE ms > 100;
        ... ''')
        >>> type(hits).__name__
        'KStream'

        Args:
            text: A SELECT; before it there may be CREATE STREAM, TABLE and TYPE that declare what it reads.
            session: A `SqlSession` whose streams and tables it may read too.

        Returns:
            A `KTable` if the query groups or reads a table, else a `KStream`. Values are dictionaries by column; a key
            of one column is its value, a key of several columns a tuple.

        Raises:
            SqlError: A statement is refused, or the last one is not a SELECT.
        """
        return LANGUAGES.get("sql")(self, text, session)

    def table(
        self,
        topic: str,
        consumed: Consumed[KeyOrAny, ValueOrAny] | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[KeyOrAny, ValueOrAny]:
        """Read a topic as a table: the newest value of each key; null deletes. It has a store if named or needed."""
        options, store_options = _table_options(topic, consumed, materialized, name)
        store = named(store_options, self._graph, f"{topic}-")
        names = self._graph.names
        source = names.processor("KSTREAM-SOURCE-", options.name, "-source")
        node = names.processor("KTABLE-SOURCE-", options.name)
        queryable = store_options is not None and store_options.name is not None
        state = SourceTable(key_value_spec(store, options.key_serde, options.value_serde), materialized=queryable)
        graph = TableSourceGraph(
            name=node,
            source=source_node(source, (topic,), options),
            operation=lambda: TableSource(state.store, state.send_old),
            own_stores=state.own_stores,
        )
        graph.output_versioned = store.history is not None
        self._graph.add(self._graph.root, graph)
        queried, key, value = store.name if queryable else None, options.key_serde, options.value_serde
        return KTable(TableHandle(self._graph, graph, node, key, value, frozenset({source}), state, queried))

    def global_table(
        self,
        topic: str,
        consumed: Consumed[KeyOrAny, ValueOrAny] | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> GlobalKTable[KeyOrAny, ValueOrAny]:
        """Read a topic as a table that every machine has in full, for joins by any key (``globalTable``).

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
        options, store_options = _table_options(topic, consumed, materialized, name)
        if store_options is not None and store_options.history is not None:
            raise TopologyError("a global table cannot be versioned", hint="Leave out history.", topic=topic)
        store = named(store_options, self._graph, f"{topic}-")
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
        return GlobalKTable(GlobalTableHandle(node, spec))

    def add_state_store(self, store: StoreSpec) -> StreamsBuilder:
        """Add a store, made with `Stores`, that processors use by its name (``addStateStore``)."""
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
        """Add a store that every machine has in full, kept up to date by a processor (``addGlobalStore``).

        Every processor may read it without being connected to it; only this one may write to it.

        Args:
            store: The store, made with `Stores`; the topic is its changelog.
            topic: The topic whose records keep the store up to date.
            supplier: The class of the processor that puts the records into the store, or a function that makes one. It
                must not forward records.
            consumed: Serdes (by default those of the store) and timestamp extractor.
            name: The processor's name.

        Raises:
            TopologyError: ``store`` is not a store, or another source reads the topic.

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
        """Build the topology. It can be extended node by node; the builder can be used and built again.

        Args:
            config: The application's settings, for ``topology.optimization`` ("none", "all", or rules with commas) and
                ``processor.wrapper.class`` (a `ProcessorWrapper`).
        """
        settings = {} if config is None else check_mapping(config, "build(): config", ConfigError)
        optimization = settings.get("topology.optimization") or "none"
        fix = str(settings.get("__enable.process.processValue.fix__", False)).lower() == "true"
        empty = Topology(dataframes=dict(self._dataframes))
        topology = self._graph.build(empty, str(optimization), heeds_processors=fix)
        return wrapped(topology, settings)


def _named(consumed: Consumed | None, name: Name) -> Consumed:
    options, name = option(consumed, Consumed, "stream"), name_of(name)
    return options if options.name or name is None else replace(options, name=name)


def _table_options(
    topic: str, consumed: Consumed | None, materialized: Materialized | str | None, name: Name
) -> tuple[Consumed, Materialized | None]:
    """Return the options of a table with the same serdes for the topic and the store, from whichever has them."""
    check_name(topic, "topic")
    options, store_options = _named(consumed, name), Materialized.of(materialized)
    if store_options is None:
        return options, None
    key = options.key_serde if options.key_serde is not None else store_options.key_serde
    value = options.value_serde if options.value_serde is not None else store_options.value_serde
    options = replace(options, key_serde=key, value_serde=value)
    return options, replace(store_options, key_serde=key, value_serde=value)
