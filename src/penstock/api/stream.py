"""KStream: an unbounded stream of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.api.async_verbs import AsyncVerbs
from penstock.api.handle import Handle, check_kind, name_of, same_builder
from penstock.api.join_verbs import JoinVerbs
from penstock.api.options import Consumed, Grouped, Materialized, Named, Produced, Repartitioned
from penstock.api.serdes import UNKNOWN, common
from penstock.topology import operations as ops
from penstock.topology.functions import Function
from penstock.topology.graph import ProcessorGraph

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.branched import BranchedKStream
    from penstock.api.dataframes import DataFrameOutput
    from penstock.api.grouped import KGroupedStream
    from penstock.api.processor import Processor
    from penstock.api.table import KTable
    from penstock.topology.graph import RepartitionGraph
    from penstock.topology.stores import StoreSpec

__all__ = ["KStream"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
Name = str | Named | None


class KStream(AsyncVerbs[K, V], JoinVerbs[K, V]):
    """A stream of records: Kafka's ``KStream``.

    A function given to a verb gets the value, or the key and the value, by the number of its parameters; a Polars
    expression over ``key``, ``timestamp`` and the value's fields (or ``value``) runs on whole batches.
    """

    def __init__(self, handle: Handle, *, needs_repartition: bool = False) -> None:
        self._handle = handle
        self._needs_repartition = needs_repartition
        self._join_repartition: RepartitionGraph | None = None

    def filter(
        self, predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr, *, name: Name = None
    ) -> KStream[K, V]:
        """Keeps the records for which the predicate holds."""
        fn = Function.wrap(predicate, verb="filter", allowed=(1, 2))
        return self._then("KSTREAM-FILTER-", name, ops.Filter(fn))

    def filter_not(
        self, predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr, *, name: Name = None
    ) -> KStream[K, V]:
        """Drops the records for which the predicate holds (``filterNot``)."""
        fn = Function.wrap(predicate, verb="filter_not", allowed=(1, 2))
        return self._then("KSTREAM-FILTER-", name, ops.Filter(fn, negate=True))

    def map(self, mapper: Callable[[K, V], tuple[K2, V2]] | pl.Expr, *, name: Name = None) -> KStream[K2, V2]:
        """Makes a (key, value) of each record. A later grouping or join repartitions.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.map(lambda key, value: (value, key)), [("a", "x")])
        [('x', 'a')]
        """
        fn = Function.wrap(mapper, verb="map", allowed=(1, 2))
        return self._then("KSTREAM-MAP-", name, ops.MapPairs(fn), keys=True, values=True)

    def map_values(
        self, mapper: Callable[[V], V2] | Callable[[K, V], V2] | pl.Expr, *, name: Name = None
    ) -> KStream[K, V2]:
        """Makes a new value of each record (``mapValues``).

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.map_values(str.upper), [("a", "x")])
        [('a', 'X')]
        """
        fn = Function.wrap(mapper, verb="map_values", allowed=(1, 2))
        return self._then("KSTREAM-MAPVALUES-", name, ops.MapValues(fn), values=True)

    def flat_map(
        self, mapper: Callable[[K, V], Sequence[tuple[K2, V2]]] | pl.Expr, *, name: Name = None
    ) -> KStream[K2, V2]:
        """Makes any number of (key, value) pairs of each record (``flatMap``).

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.flat_map(lambda key, value: [(word, key) for word in value.split()]), [("a", "x y")])
        [('x', 'a'), ('y', 'a')]
        """
        fn = Function.wrap(mapper, verb="flat_map", allowed=(1, 2))
        return self._then("KSTREAM-FLATMAP-", name, ops.FlatMap(fn), keys=True, values=True)

    def flat_map_values(
        self, mapper: Callable[[V], Sequence[V2]] | Callable[[K, V], Sequence[V2]] | pl.Expr, *, name: Name = None
    ) -> KStream[K, V2]:
        """Makes any number of values of each record (``flatMapValues``).

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.flat_map_values(str.split), [("a", "x y")])
        [('a', 'x'), ('a', 'y')]
        """
        fn = Function.wrap(mapper, verb="flat_map_values", allowed=(1, 2))
        return self._then("KSTREAM-FLATMAPVALUES-", name, ops.FlatMapValues(fn), values=True)

    def select_key(
        self, mapper: Callable[[V], K2] | Callable[[K, V], K2] | pl.Expr, *, name: Name = None
    ) -> KStream[K2, V]:
        """Gives each record a new key (``selectKey``). A later grouping or join repartitions.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.select_key(lambda value: value[0]), [("a", "xyz")])
        [('x', 'xyz')]
        """
        fn = Function.wrap(mapper, verb="select_key", allowed=(1, 2))
        return self._then("KSTREAM-KEY-SELECT-", name, ops.SelectKey(fn), keys=True)

    def peek(self, action: Callable[[V], object] | Callable[[K, V], object], *, name: Name = None) -> KStream[K, V]:
        """Calls the action for each record and passes the record on unchanged.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.peek(print), [("a", "x")])
        a x
        [('a', 'x')]
        """
        fn = Function.wrap(action, verb="peek", allowed=(1, 2), expression=False)
        return self._then("KSTREAM-PEEK-", name, ops.Peek(fn))

    def foreach(self, action: Callable[[V], object] | Callable[[K, V], object], *, name: Name = None) -> None:
        """Calls the action for each record; the stream ends here.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.foreach(print) or s, [("a", "x")])
        a x
        [('a', 'x')]
        """
        fn = Function.wrap(action, verb="foreach", allowed=(1, 2), expression=False)
        self._then("KSTREAM-FOREACH-", name, ops.Foreach(fn))

    def merge(self, other: KStream[K, V], *, name: Name = None) -> KStream[K, V]:
        """The records of both streams; each keeps its own order.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.merge(s.map_values(str.upper)), [("a", "x")])
        [('a', 'X'), ('a', 'x')]
        """
        check_kind(other, KStream, "merge", "Pass the other stream.")
        mine, its = self._handle, other._handle
        same_builder(mine, its, "merge")
        node = mine.builder.names.processor("KSTREAM-MERGE-", name_of(name))
        graph = ProcessorGraph(name=node, operation=ops.PassThrough, merges=True)
        mine.builder.add(dict.fromkeys([mine.graph, its.graph]), graph)
        key, value = common(mine.key_serde, its.key_serde), common(mine.value_serde, its.value_serde)
        handle = Handle(mine.builder, graph, node, key, value, mine.sources | its.sources)
        return KStream(handle, needs_repartition=self._needs_repartition or other._needs_repartition)

    def split(self, *, name: Name = None) -> BranchedKStream[K, V]:
        """Starts a branching: ``stream.split().branch(...).branch(...).default_branch()``."""
        from penstock.api.branched import BranchedKStream

        return BranchedKStream(self, name_of(name))

    def group_by_key(self, grouped: Grouped | None = None, *, name: Name = None) -> KGroupedStream[K, V]:
        """Groups by the present key (``groupByKey``); repartitions only if the key has changed.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by_key().count(), [("a", "x"), ("a", "y")])
        [('a', 1), ('a', 2)]
        """
        from penstock.api.grouped import grouped_stream

        return grouped_stream(self, grouped, name_of(name))

    def group_by(
        self,
        selector: Callable[[V], K2] | Callable[[K, V], K2] | pl.Expr,
        grouped: Grouped | None = None,
        *,
        name: Name = None,
    ) -> KGroupedStream[K2, V]:
        """Groups by a new key (``groupBy``), through a repartition topic.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by(lambda value: value[0]).count(), [("a", "xy"), ("b", "xz")])
        [('x', 1), ('x', 2)]
        """
        from penstock.api.grouped import grouped_stream

        fn = Function.wrap(selector, verb="group_by", allowed=(1, 2))
        given = (grouped.name if grouped else None) or name_of(name)
        keyed: KStream[Any, V] = self._then("KSTREAM-KEY-SELECT-", given, ops.SelectKey(fn), keys=True)
        return grouped_stream(keyed, grouped, name_of(name))

    def to_table(self, materialized: Materialized | str | None = None, *, name: Name = None) -> KTable[K, V]:
        """Reads the stream as a table's changes (``toTable``): the newest value of a key wins, null deletes.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.to_table(), [("a", "x"), ("a", None)])
        [('a', 'x'), ('a', None)]
        """
        from penstock.api.table_of_stream import table_of_stream

        return table_of_stream(self, Materialized.of(materialized), name_of(name))

    def repartition(self, repartitioned: Repartitioned | None = None, *, name: Name = None) -> KStream[K, V]:
        """Sends the records through an internal topic of their present key.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.select_key(len).repartition(), [("a", "xyz")])
        [(3, 'xyz')]
        """
        from penstock.api.topics import repartition

        return repartition(self, repartitioned or Repartitioned(), name_of(name))

    def through(
        self,
        topic: str,
        produced: Produced | None = None,
        consumed: Consumed | None = None,
        *,
        materialize_topic: bool = False,
    ) -> KStream[K, V]:
        """Writes to a topic and reads on from it.

        With ``materialize_topic`` the topic is a real one of that name, as ``to`` and ``stream``; without, it is the
        internal topic ``<topic>-repartition``.
        """
        from penstock.api.topics import through

        return through(self, topic, produced, consumed, materialize_topic=materialize_topic)

    def to(self, topic: str | Callable[..., str], produced: Produced | None = None, *, name: Name = None) -> None:
        """Writes to a topic, or to the one that a function of (key, value) or (key, value, record context) names."""
        from penstock.api.topics import to_topic

        to_topic(self, topic, produced or Produced(), name_of(name))

    def to_dataframe(self, topic: str, produced: Produced | None = None, *, name: Name = None) -> DataFrameOutput:
        """Writes to a topic that is to be read as a streaming Spark DataFrame.

        Returns:
            Its ``of(app)`` gives the DataFrame of an application that has been started.
        """
        from penstock.api.dataframes import dataframe_output

        return dataframe_output(self, topic, produced or Produced(), name_of(name))

    def process(
        self, supplier: Callable[[], Processor[K, V]], stores: Sequence[str | StoreSpec] = (), *, name: Name = None
    ) -> KStream[Any, Any]:
        """Runs a `Processor` per task: pass its class, or a function without arguments that makes one."""
        from penstock.api.processing import process

        return process(self, supplier, stores, name_of(name), fixed_key=False)

    def process_values(
        self, supplier: Callable[[], Processor[K, V]], stores: Sequence[str | StoreSpec] = (), *, name: Name = None
    ) -> KStream[K, Any]:
        """Runs a `FixedKeyProcessor` per task, which keeps keys (``processValues``)."""
        from penstock.api.processing import process

        return process(self, supplier, stores, name_of(name), fixed_key=True)

    def _then(
        self, prefix: str, name: Name, operation: ops.Operation, *, keys: bool = False, values: bool = False
    ) -> KStream[Any, Any]:
        """Adds one processor; ``keys`` and ``values`` say what it changes."""
        handle = self._handle
        node = handle.builder.names.processor(prefix, name_of(name))
        graph = ProcessorGraph(
            name=node, operation=lambda: operation, changes_key=keys, changes_value=values and not keys
        )
        return self._below(graph, keys=keys, values=values)

    def _below(self, graph: ProcessorGraph, *, keys: bool, values: bool) -> KStream[Any, Any]:
        """Adds a graph node, and gives its stream."""
        handle = self._handle
        handle.builder.add(handle.graph, graph)
        below = Handle(
            handle.builder,
            graph,
            graph.name,
            UNKNOWN if keys else handle.key_serde,
            UNKNOWN if values else handle.value_serde,
            handle.sources,
        )
        return KStream(below, needs_repartition=self._needs_repartition or keys)

    def __repr__(self) -> str:
        return f"KStream({self._handle.node})"
