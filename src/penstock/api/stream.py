"""KStream, an unbounded stream of records, and BranchedKStream, one that is split by predicates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.api.dataframes import DataFrameOutput, dataframe_output
from penstock.api.derived_tables import table_of_stream
from penstock.api.handle import Fluent, StreamHandle, check_kind, name_of, option, same_builder
from penstock.api.joins.verbs import JoinVerbs
from penstock.api.options import Branched, Consumed, Grouped, Materialized, Named, Produced, Repartitioned
from penstock.api.processing.async_verbs import AsyncVerbs
from penstock.api.processing.build import process
from penstock.api.serdes import common
from penstock.api.topic_verbs import connector_settings, repartition, through, to_topic
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.building.names import check_name
from penstock.topology.operations import definitions as ops
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.groups.grouped import KGroupedStream
    from penstock.api.processing.processor import Processor
    from penstock.api.table import KTable
    from penstock.topology.stores import StoreSpec

__all__ = ["BranchedKStream", "KStream"]

K = TypeVar("K")
V = TypeVar("V")


@with_java_names
class BranchedKStream(Fluent[StreamHandle], Generic[K, V]):
    """A split stream: Kafka's ``BranchedKStream``. A record goes to the first branch whose predicate is true."""

    def __init__(self, handle: StreamHandle, name: str | None) -> None:
        super().__init__(handle)
        self._name = handle.builder.names.processor("KSTREAM-BRANCH-", name)
        self._predicates: list[Function] = []
        self._children: list[str] = []
        self._default: str | None = None
        self._branches: dict[str, KStream[K, V]] = {}
        self._graph = ProcessorGraph(name=self._name, operation=self._operation)
        handle.builder.add(handle.graph, self._graph)

    @overload
    def branch(
        self,
        predicate: Callable[[V], bool],
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> BranchedKStream[K, V]: ...

    @overload
    def branch(
        self,
        predicate: Callable[[K, V], bool] | pl.Expr,
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> BranchedKStream[K, V]: ...

    def branch(
        self,
        predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr,
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> BranchedKStream[K, V]:
        """Add a branch. Its stream is passed to ``to``, or is in the result under the key ``<split name><name>``."""
        if self._default is not None:
            raise TopologyError("branch() comes after default_branch()", hint="Make the default branch last.")
        self._predicates.append(Function.wrap(predicate, verb="branch", allowed=(1, 2)))
        self._children.append(self._add(_options(branched, name, to), len(self._predicates)))
        return self

    def default_branch(
        self,
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> dict[str, KStream[K, V]]:
        """Add a branch for all other records (``defaultBranch``), and return the branches by name."""
        if self._default is not None:
            raise TopologyError("a split has one default branch", hint="Call default_branch() once.")
        self._default = self._add(_options(branched, name, to), 0)
        return dict(self._branches)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Drop all other records (``noDefaultBranch``), and return the branches by name."""
        return dict(self._branches)

    def _operation(self) -> ops.Branch:
        return ops.Branch(tuple(self._predicates), tuple(self._children), self._default)

    def _add(self, branched: Branched, number: int) -> str:

        above = self._handle
        child = check_name(f"{self._name}{number if branched.name is None else branched.name}")
        above.builder.names.processor(child)  # Kafka uses up a number here
        graph = ProcessorGraph(name=child, operation=ops.PassThrough)
        above.builder.add(self._graph, graph)
        stream: KStream[K, V] = KStream(replace(above, graph=graph, node=child))
        result = stream if branched.to is None else branched.to(stream)
        if isinstance(result, KStream):
            self._branches[child] = result
        return child


def _options(branched: Branched | None, name: str | Named | None, to: Callable[[Any], Any] | None) -> Branched:
    return Branched(name_of(name), to) if branched is None else option(branched, Branched, "branch")


K2 = TypeVar("K2")
V2 = TypeVar("V2")
Name = str | Named | None


@with_java_names
class KStream(AsyncVerbs[K, V], JoinVerbs[K, V]):
    """A stream of records: Kafka's ``KStream``.

    A function passed to a verb is called with the value, or with the key and the value, by the number of its
    parameters. A Polars expression over ``key``, ``timestamp`` and the value's fields (or ``value``) runs on whole
    batches.
    """

    @overload
    def filter(self, predicate: Callable[[V], bool], *, name: Name = None) -> KStream[K, V]: ...

    @overload
    def filter(self, predicate: Callable[[K, V], bool] | pl.Expr, *, name: Name = None) -> KStream[K, V]: ...

    def filter(
        self, predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr, *, name: Name = None
    ) -> KStream[K, V]:
        """Keep the records for which the predicate is true."""
        fn = Function.wrap(predicate, verb="filter", allowed=(1, 2))
        return self._then("KSTREAM-FILTER-", name, ops.Filter(fn))

    @overload
    def filter_not(self, predicate: Callable[[V], bool], *, name: Name = None) -> KStream[K, V]: ...

    @overload
    def filter_not(self, predicate: Callable[[K, V], bool] | pl.Expr, *, name: Name = None) -> KStream[K, V]: ...

    def filter_not(
        self, predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr, *, name: Name = None
    ) -> KStream[K, V]:
        """Drop the records for which the predicate is true (``filterNot``)."""
        fn = Function.wrap(predicate, verb="filter_not", allowed=(1, 2))
        return self._then("KSTREAM-FILTER-", name, ops.Filter(fn, negate=True))

    def map(self, mapper: Callable[[K, V], tuple[K2, V2]] | pl.Expr, *, name: Name = None) -> KStream[K2, V2]:
        """Replace each record with a (key, value). A later grouping or join repartitions.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.map(lambda key, value: (value, key)), [("a", "x")])
        [('x', 'a')]
        """
        fn = Function.wrap(mapper, verb="map", allowed=(1, 2))
        return self._then("KSTREAM-MAP-", name, ops.MapPairs(fn), keys=True, values=True)

    @overload
    def map_values(self, mapper: Callable[[V], V2], *, name: Name = None) -> KStream[K, V2]: ...

    @overload
    def map_values(self, mapper: Callable[[K, V], V2], *, name: Name = None) -> KStream[K, V2]: ...

    @overload
    def map_values(self, mapper: pl.Expr, *, name: Name = None) -> KStream[K, Any]: ...

    def map_values(
        self, mapper: Callable[[V], V2] | Callable[[K, V], V2] | pl.Expr, *, name: Name = None
    ) -> KStream[K, V2]:
        """Replace the value of each record (``mapValues``).

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.map_values(str.upper), [("a", "x")])
        [('a', 'X')]
        """
        fn = Function.wrap(mapper, verb="map_values", allowed=(1, 2))
        return self._then("KSTREAM-MAPVALUES-", name, ops.MapValues(fn), values=True)

    def flat_map(
        self, mapper: Callable[[K, V], Sequence[tuple[K2, V2]]] | pl.Expr, *, name: Name = None
    ) -> KStream[K2, V2]:
        """Replace each record with any number of (key, value) pairs (``flatMap``).

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.flat_map(lambda key, value: [(word, key) for word in value.split()]), [("a", "x y")])
        [('x', 'a'), ('y', 'a')]
        """
        fn = Function.wrap(mapper, verb="flat_map", allowed=(1, 2))
        return self._then("KSTREAM-FLATMAP-", name, ops.FlatMap(fn), keys=True, values=True)

    @overload
    def flat_map_values(self, mapper: Callable[[V], Sequence[V2]], *, name: Name = None) -> KStream[K, V2]: ...

    @overload
    def flat_map_values(self, mapper: Callable[[K, V], Sequence[V2]], *, name: Name = None) -> KStream[K, V2]: ...

    @overload
    def flat_map_values(self, mapper: pl.Expr, *, name: Name = None) -> KStream[K, Any]: ...

    def flat_map_values(
        self, mapper: Callable[[V], Sequence[V2]] | Callable[[K, V], Sequence[V2]] | pl.Expr, *, name: Name = None
    ) -> KStream[K, V2]:
        """Replace the value of each record with any number of values (``flatMapValues``).

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.flat_map_values(str.split), [("a", "x y")])
        [('a', 'x'), ('a', 'y')]
        """
        fn = Function.wrap(mapper, verb="flat_map_values", allowed=(1, 2))
        return self._then("KSTREAM-FLATMAPVALUES-", name, ops.FlatMapValues(fn), values=True)

    @overload
    def select_key(self, mapper: Callable[[V], K2], *, name: Name = None) -> KStream[K2, V]: ...

    @overload
    def select_key(self, mapper: Callable[[K, V], K2], *, name: Name = None) -> KStream[K2, V]: ...

    @overload
    def select_key(self, mapper: pl.Expr, *, name: Name = None) -> KStream[Any, V]: ...

    def select_key(
        self, mapper: Callable[[V], K2] | Callable[[K, V], K2] | pl.Expr, *, name: Name = None
    ) -> KStream[K2, V]:
        """Replace the key of each record (``selectKey``). A later grouping or join repartitions.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.select_key(lambda value: value[0]), [("a", "xyz")])
        [('x', 'xyz')]
        """
        fn = Function.wrap(mapper, verb="select_key", allowed=(1, 2))
        return self._then("KSTREAM-KEY-SELECT-", name, ops.SelectKey(fn), keys=True)

    @overload
    def peek(self, action: Callable[[V], object], *, name: Name = None) -> KStream[K, V]: ...

    @overload
    def peek(self, action: Callable[[K, V], object], *, name: Name = None) -> KStream[K, V]: ...

    def peek(self, action: Callable[[V], object] | Callable[[K, V], object], *, name: Name = None) -> KStream[K, V]:
        """Call the action for each record, and pass the record on unchanged.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.peek(print), [("a", "x")])
        a x
        [('a', 'x')]
        """
        fn = Function.wrap(action, verb="peek", allowed=(1, 2), expression=False)
        return self._then("KSTREAM-PEEK-", name, ops.Peek(fn))

    @overload
    def foreach(self, action: Callable[[V], object], *, name: Name = None) -> None: ...

    @overload
    def foreach(self, action: Callable[[K, V], object], *, name: Name = None) -> None: ...

    def foreach(self, action: Callable[[V], object] | Callable[[K, V], object], *, name: Name = None) -> None:
        """Call the action for each record, and end the stream.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.foreach(print) or s, [("a", "x")])
        a x
        [('a', 'x')]
        """
        fn = Function.wrap(action, verb="foreach", allowed=(1, 2), expression=False)
        self._then("KSTREAM-FOREACH-", name, ops.Foreach(fn))

    def merge(self, other: KStream[K, V], *, name: Name = None) -> KStream[K, V]:
        """Merge two streams. The records of each keep their order.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.merge(s.map_values(str.upper)), [("a", "x")])
        [('a', 'X'), ('a', 'x')]
        """
        check_kind(other, KStream, "merge", "Pass the other stream.")
        mine, its = self._handle, self._handle_of(other)
        same_builder(mine, its, "merge")
        node = mine.builder.names.processor("KSTREAM-MERGE-", name_of(name))
        graph = ProcessorGraph(name=node, operation=ops.PassThrough, merges=True)
        mine.builder.add(dict.fromkeys([mine.graph, its.graph]), graph)
        key, value = common(mine.key_serde, its.key_serde), common(mine.value_serde, its.value_serde)
        needs = mine.needs_repartition or its.needs_repartition
        return KStream(StreamHandle(mine.builder, graph, node, key, value, mine.sources | its.sources, needs))

    def split(self, *, name: Name = None) -> BranchedKStream[K, V]:
        """Split the stream into branches: ``stream.split().branch(...).branch(...).default_branch()``."""
        return BranchedKStream(self._handle, name_of(name))

    def group_by_key(self, grouped: Grouped | None = None, *, name: Name = None) -> KGroupedStream[K, V]:
        """Group by the current key (``groupByKey``). Repartitions only if the key has changed.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by_key().count(), [("a", "x"), ("a", "y")])
        [('a', 1), ('a', 2)]
        """
        from penstock.api.groups.grouped import KGroupedStream, group_stream

        return KGroupedStream(group_stream(self._handle, grouped, name_of(name)))

    @overload
    def group_by(
        self, selector: Callable[[V], K2], grouped: Grouped | None = None, *, name: Name = None
    ) -> KGroupedStream[K2, V]: ...

    @overload
    def group_by(
        self, selector: Callable[[K, V], K2], grouped: Grouped | None = None, *, name: Name = None
    ) -> KGroupedStream[K2, V]: ...

    @overload
    def group_by(
        self, selector: pl.Expr, grouped: Grouped | None = None, *, name: Name = None
    ) -> KGroupedStream[Any, V]: ...

    def group_by(
        self,
        selector: Callable[[V], K2] | Callable[[K, V], K2] | pl.Expr,
        grouped: Grouped | None = None,
        *,
        name: Name = None,
    ) -> KGroupedStream[K2, V]:
        """Group by a new key (``groupBy``), through a repartition topic.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by(lambda value: value[0]).count(), [("a", "xy"), ("b", "xz")])
        [('x', 1), ('x', 2)]
        """
        from penstock.api.groups.grouped import KGroupedStream, group_stream

        fn = Function.wrap(selector, verb="group_by", allowed=(1, 2))
        user_name = option(grouped, Grouped, "group_by").name or name_of(name)
        keyed = self._handle.then("KSTREAM-KEY-SELECT-", user_name, ops.SelectKey(fn), keys=True)
        return KGroupedStream(group_stream(keyed, grouped, name_of(name)))

    def to_table(self, materialized: Materialized | str | None = None, *, name: Name = None) -> KTable[K, V]:
        """Read the stream as the changes of a table (``toTable``): the newest value of each key; null deletes.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.to_table(), [("a", "x"), ("a", None)])
        [('a', 'x'), ('a', None)]
        """
        from penstock.api.table import KTable

        return KTable(table_of_stream(self._handle, Materialized.of(materialized), name_of(name)))

    def repartition(self, repartitioned: Repartitioned | None = None, *, name: Name = None) -> KStream[K, V]:
        """Send the records through an internal topic, partitioned by their current key.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.select_key(len).repartition(), [("a", "xyz")])
        [(3, 'xyz')]
        """
        options = option(repartitioned, Repartitioned, "repartition")
        return KStream(repartition(self._handle, options, name_of(name)))

    def through(
        self,
        topic: str,
        produced: Produced | None = None,
        consumed: Consumed | None = None,
        *,
        materialize_topic: bool = False,
    ) -> KStream[K, V]:
        """Write to a topic and continue with its records.

        Args:
            topic: The topic.
            produced: The options of writing.
            consumed: The options of reading; only with ``materialize_topic``.
            materialize_topic: Whether the topic is a user's topic of this name, as for ``to`` and ``stream``, rather
                than the internal topic ``<topic>-repartition``.
        """
        return KStream(through(self._handle, topic, produced, consumed, materialize_topic=materialize_topic))

    def to(self, topic: str | Callable[..., str], produced: Produced | None = None, *, name: Name = None) -> None:
        """Write to a topic, or to the one returned by a function of (key, value) or (key, value, record context)."""
        to_topic(self._handle, topic, option(produced, Produced, "to"), name_of(name))

    def sink_to(
        self, connector: Mapping[str, Any], *, topic: str, produced: Produced | None = None, name: Name = None
    ) -> None:
        """Write to a topic, which a sink connector carries on while the application runs; not in Kafka Streams.

        The topic has the results, exactly once. A thread of the application's own process runs the connector in the
        group ``connect-<name>``, and goes on where it stopped: several instances share the topic's partitions. A sink
        that keeps offsets with its data, such as those of Delta Lake, Apache Iceberg and object stores, and JDBC with
        ``exactly.once``, has each record once. An error of the connector ends the application. A run until "latest"
        ends when the sink has all. In a test driver the records are in the topic.

        >>> from penstock import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> orders = builder.stream("orders").filter(lambda order: order["total"] > 0)
        >>> orders.sink_to({"connector.class": "DeltaSink", "table.uri": "lake/orders"}, topic="paid")

        Args:
            connector: Its settings, as a worker of Kafka Connect takes them, without ``topics``. ``name`` is by default
                ``<application.id>-<topic>``. Keys are read as text and values as JSON, unless it names converters.
            topic: The topic.
            produced: Serdes and partitioner of the topic.
            name: The sink node's name.

        Raises:
            TopologyError: The settings name no connector, or topics.
        """
        check_name(topic, "topic")
        to_topic(
            self._handle, topic, option(produced, Produced, "sink_to"), name_of(name), connector_settings(connector)
        )

    def to_dataframe(self, topic: str, produced: Produced | None = None, *, name: Name = None) -> DataFrameOutput:
        """Write to a topic that is read as a streaming Spark DataFrame.

        Returns:
            An object whose method ``of(app)`` returns the DataFrame once the application has started.
        """
        return dataframe_output(self._handle, topic, option(produced, Produced, "to_dataframe"), name_of(name))

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        stores: Sequence[str | StoreSpec] = (),
        *,
        name: Name = None,
    ) -> KStream[K2, V2]:
        """Process the records with a `Processor`.

        Args:
            supplier: The class, or a function without arguments that makes a processor; called once for each task.
            stores: Stores to add and use, or the names of stores that have been added.
            name: The name of the processor.
        """
        return KStream(process(self._handle, supplier, stores, name_of(name), fixed_key=False))

    def process_values(
        self,
        supplier: Callable[[], Processor[K, V, K, V2]],
        stores: Sequence[str | StoreSpec] = (),
        *,
        name: Name = None,
    ) -> KStream[K, V2]:
        """Process the records with a `FixedKeyProcessor` (``processValues``); for the arguments see ``process``."""
        return KStream(process(self._handle, supplier, stores, name_of(name), fixed_key=True))

    def _then(
        self, prefix: str, name: Name, operation: ops.Operation, *, keys: bool = False, values: bool = False
    ) -> KStream[Any, Any]:
        return KStream(self._handle.then(prefix, name_of(name), operation, keys=keys, values=values))

    def __repr__(self) -> str:
        return f"KStream({self._handle.node})"
