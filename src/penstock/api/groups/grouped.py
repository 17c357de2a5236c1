"""Grouped streams and tables, cogrouped and windowed ones: records by key, or by key and window; their aggregations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.api.groups.agg import BuiltInAggregator
from penstock.api.handle import (
    Fluent,
    Handle,
    SharedTopic,
    StreamHandle,
    TableHandle,
    check_kind,
    name_of,
    option,
    same_builder,
)
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Grouped, Materialized, Named
from penstock.api.serdes import UNKNOWN, for_internal, for_topic, resolve
from penstock.api.table import KTable
from penstock.api.windowed.windows import (
    EmitStrategy,
    InWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Unwindowed,
    Windowing,
    Windows,
)
from penstock.base.argument_checks import check_given
from penstock.base.durations import DurationLike
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.building.graph import GraphNode, ProcessorGraph, RepartitionGraph
from penstock.topology.operations import definitions as ops
from penstock.topology.operations.definitions import CogroupMember, CogroupMerge
from penstock.topology.operations.functions import MERGED, Function
from penstock.topology.tables import AggregatedTable, DerivedTable

if TYPE_CHECKING:
    import polars as pl

    from penstock.serde.windowed import Windowed

__all__ = [
    "CogroupFold",
    "CogroupedKStream",
    "Cogrouping",
    "Fold",
    "KGroupedStream",
    "KGroupedTable",
    "TableGrouping",
    "aggregate_of",
    "cogroup",
    "group_stream",
    "group_table",
    "initial",
]


@dataclass(frozen=True, slots=True)
class Fold:
    """One call of ``count``, ``reduce`` or ``aggregate``.

    ``value_serde`` is the serde of the results, unless ``materialized`` has one.
    """

    aggregation: ops.Aggregation
    materialized: Materialized | None
    name: str | None
    value_serde: Any = UNKNOWN

    @property
    def verb(self) -> str:
        """The part of generated names: ``REDUCE``, or ``AGGREGATE`` for counts too."""
        return "REDUCE" if self.aggregation.kind == "reduce" else "AGGREGATE"

    @property
    def queryable(self) -> bool:
        """Whether the user named the store."""
        return self.materialized is not None and self.materialized.name is not None


def aggregate_of(
    initializer: object,
    aggregator: object,
    *,
    subtractor: object = None,
    merger: object = None,
    expression: bool = True,
) -> ops.Aggregation:
    """Make an aggregation of an initializer and functions of (key, value, aggregate); built-in ones start from None."""
    if aggregator is None:
        if not isinstance(initializer, BuiltInAggregator):
            if getattr(initializer, "__module__", None) == BuiltInAggregator.__module__ and callable(initializer):
                name = getattr(initializer, "__name__", "sum")
                raise TopologyError(
                    f"aggregate() got the function agg.{name} itself",
                    hint=f'Call it: agg.{name}("field"), or agg.{name}() for the value.',
                )
            raise TopologyError(
                "aggregate() takes an initializer and an aggregator; the aggregator is missing",
                hint='Write aggregate(0, lambda key, value, total: ...), or aggregate(agg.sum("field")).',
            )
        initializer, aggregator = None, initializer
    return ops.Aggregation(
        "aggregate",
        Function.wrap(aggregator, verb="aggregate", allowed=(3,), expression=expression and subtractor is None),
        initial(initializer),
        None if subtractor is None else _other(subtractor, "aggregate: subtractor", ""),
        None if merger is None else _other(merger, "aggregate: merger", MERGED),
    )


def _other(fn: object, verb: str, passed: str) -> Function:
    return Function.wrap(fn, verb=verb, allowed=(3,), passed=passed, expression=False)


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any

    def __call__(self) -> Any:
        return self.value


def _check_initializer(initializer: Callable[..., Any]) -> None:
    try:
        inspect.signature(initializer).bind()
    except ValueError:
        return  # a built-in, which does not say what it takes
    except TypeError as error:
        raise TopologyError(
            f"the initializer of aggregate() is called without arguments, but {initializer!r} requires some: {error}",
            hint="Write lambda: 0, or pass the constant itself.",
        ) from error


def initial(initializer: object) -> Callable[[], Any]:
    """Make an initializer of a callable without arguments, or of a constant that cannot be changed in place."""
    if callable(initializer):
        _check_initializer(initializer)
        return initializer
    if isinstance(initializer, list | dict | set | bytearray):
        raise TopologyError(
            f"aggregate() starts with the {type(initializer).__name__} {initializer!r}, which all keys would share",
            hint=f"Pass a function that makes a new one: {type(initializer).__name__}, or lambda: {initializer!r}.",
        )
    return _Constant(initializer)


@dataclass(frozen=True, slots=True, eq=False)
class TableGrouping:
    """The place of all aggregations of one grouped table."""

    rows: Handle
    topic_name: str | None
    topic: SharedTopic = field(default_factory=SharedTopic, init=False)

    def fold(self, fold: Fold) -> TableHandle:
        """Add an aggregation below the repartition topic."""
        above, names = self.rows, self.rows.builder.names
        # Kafka names the store KTABLE-AGGREGATE- for every kind of aggregation.
        store = named(fold.materialized, above.builder, "KTABLE-AGGREGATE-")
        sink = names.processor("KSTREAM-SINK-", fold.name, "-sink")
        source = names.processor("KSTREAM-SOURCE-", fold.name, "-source")
        node = names.processor(f"KTABLE-{fold.verb}-", fold.name)
        new_topic = self._make_topic(sink, source, f"{self.topic_name or store.name}-repartition")
        topic = self.topic.choose(new_topic, share=self.topic_name is not None)
        above.builder.add(above.graph, topic)
        key = store.key_serde if store.key_serde is not None else above.key_serde
        value = store.value_serde if store.value_serde is not None else fold.value_serde
        spec = key_value_spec(store, key, value)
        state = DerivedTable((), spec)
        graph = ProcessorGraph(
            name=node,
            operation=lambda: ops.TableAggregate(fold.aggregation, spec.name, state.send_old),
            own_stores=state.own_stores,
        )
        graph.output_versioned = spec.kind == "versioned"
        above.builder.add(topic, graph)
        queried = spec.name if fold.queryable else None
        return TableHandle(above.builder, graph, node, key, value, frozenset({source}), state, queried)

    def _make_topic(self, sink: str, source: str, topic: str) -> RepartitionGraph:
        from penstock.serde import ChangeSerde

        return RepartitionGraph(
            name=source,
            topic=topic,
            sink=sink,
            filter=None,
            key_serde=for_topic(self.rows.key_serde),
            value_serde=ChangeSerde(for_internal(self.rows.value_serde)),
        )


def group_table(above: TableHandle, fn: Function, grouped: Grouped, name: str | None) -> TableGrouping:
    """Add `KTable.group_by`."""
    user_name = grouped.name or name
    node = above.builder.names.processor("KTABLE-SELECT-", user_name)
    graph = ProcessorGraph(name=node, operation=lambda: ops.TableRegroup(fn, above.node, above.graph.is_versioned()))
    above.builder.add(above.graph, graph)
    above.state.enable_send_old(force=True)
    key = grouped.key_serde if grouped.key_serde is not None else UNKNOWN
    value = grouped.value_serde if grouped.value_serde is not None else UNKNOWN
    return TableGrouping(Handle(above.builder, graph, node, key, value, above.sources), user_name)


K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
Name = str | Named | None


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The place of all aggregations of one grouped stream: Kafka's ``GroupedStreamAggregateBuilder``."""

    stream: StreamHandle
    topic_name: str | None
    topic: SharedTopic = field(default_factory=SharedTopic, init=False)

    def make_topic(self, store: str) -> RepartitionGraph:
        """Make the repartition topic, named by the user or after the store of an aggregation."""
        above = self.stream
        name = self.topic_name or store
        return above.builder.repartition_node(name, for_topic(above.key_serde), for_internal(above.value_serde))

    def fold(self, fold: Fold, windowing: Windowing) -> TableHandle:
        """Add an aggregation, below a repartition topic if the key has changed."""
        above, builder = self.stream, self.stream.builder
        prefix = f"KSTREAM-{fold.verb}-"
        store = named(fold.materialized, builder, prefix)
        node = builder.names.processor(prefix, fold.name)
        key = store.key_serde if store.key_serde is not None else above.key_serde
        value = store.value_serde if store.value_serde is not None else fold.value_serde
        spec = windowing.store(store, key, value)
        parent: GraphNode = above.graph
        sources = above.sources
        if above.needs_repartition:
            # Names are taken for every aggregation, even if a topic named by the user is shared.
            new_topic = self.make_topic(spec.name)
            parent = self.topic.choose(new_topic, share=self.topic_name is not None)
            builder.add(above.graph, parent)
            sources = frozenset({new_topic.name})
        state = AggregatedTable(spec)
        graph = ProcessorGraph(
            name=node,
            operation=lambda: windowing.operation(fold.aggregation, state),
            own_stores=state.own_stores,
        )
        graph.output_versioned = spec.kind == "versioned"
        graph.grace_ms = windowing.grace_ms
        builder.add(parent, graph)
        queried = spec.name if fold.queryable else None
        return TableHandle(builder, graph, node, windowing.keys(key), value, sources, state, queried)


def group_stream(above: StreamHandle, grouped: Grouped | None, name: str | None) -> Grouping:
    """Group a stream by its present key; the serdes of ``grouped`` replace those inherited."""
    options = option(grouped, Grouped, "group_by_key")
    handle = replace(
        above,
        key_serde=options.key_serde if options.key_serde is not None else above.key_serde,
        value_serde=options.value_serde if options.value_serde is not None else above.value_serde,
    )
    return Grouping(handle, options.name or name)


R = TypeVar("R")  # the keys of the result: plain or windowed


class StreamAggregations(Fluent[Grouping], Generic[K, V, R]):
    """The aggregations of every grouped stream, windowed or not."""

    def __init__(self, grouping: Grouping, windowing: Windowing) -> None:
        super().__init__(grouping)
        self._windowing = windowing

    def count(self, materialized: Materialized | str | None = None, *, name: Name = None) -> KTable[R, int]:
        """Count the records of each key (and window).

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by_key().count(), [("a", "x"), ("a", "y")])
        [('a', 1), ('a', 2)]
        """
        store_options = Materialized.of(materialized)
        if store_options is not None and store_options.name is None and self._windowing.burns_count_name:
            self._handle.stream.builder.names.store("KSTREAM-AGGREGATE-")
        return self._fold(Fold(ops.Aggregation("count"), store_options, name_of(name), resolve("long")))

    def reduce(
        self, reducer: Callable[[V, V], V], materialized: Materialized | str | None = None, *, name: Name = None
    ) -> KTable[R, V]:
        """Combine the values of each key (and window) by ``reducer(aggregate, value)``, starting from the first value.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by_key().reduce(lambda a, b: a + b), [("a", 2), ("a", 3)])
        [('a', 2), ('a', 5)]
        """
        by_column = self._windowing.takes_expressions
        fn = Function.wrap(reducer, verb="reduce", allowed=(2,), expression=by_column)
        aggregation, value_serde = ops.Aggregation("reduce", fn), self._handle.stream.value_serde
        return self._fold(Fold(aggregation, Materialized.of(materialized), name_of(name), value_serde))

    def _fold(self, fold: Fold) -> KTable[Any, Any]:
        return KTable(self._handle.fold(fold, self._windowing))

    def _fold_to_result(self, fold: Fold) -> KTable[Any, Any]:
        """Add an ``aggregate``; a mean and the like are computed below the table of what they are computed from."""
        store_options = fold.materialized
        builtin = None if fold.aggregation.aggregator is None else fold.aggregation.aggregator.fn
        if not isinstance(builtin, BuiltInAggregator) or builtin.is_final:
            return self._fold(fold)
        table = self._fold(
            replace(fold, materialized=None if store_options is None else replace(store_options, value_serde=None))
        )
        serde = None if store_options is None else store_options.value_serde
        shown = None if serde is None else Materialized(value_serde=serde)
        return table.map_values(builtin.result, shown, name=None if fold.name is None else f"{fold.name}-result")


class FoldingAggregations(StreamAggregations[K, V, R]):
    """Aggregations with an ``aggregate`` of an initializer and an aggregator; that of sessions takes a merger, too."""

    @overload
    def aggregate(
        self,
        initializer: BuiltInAggregator,
        aggregator: None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[R, Any]: ...

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[R, A]: ...

    @overload
    def aggregate(
        self,
        initializer: A,
        aggregator: Callable[[K, V, A], A] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[R, A]: ...

    def aggregate(
        self,
        initializer: Any,
        aggregator: Any = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[R, Any]:
        """Aggregate the values of each key (and window) by ``aggregator(key, value, aggregate)``.

        The first aggregate is a constant or ``initializer()``. A built-in aggregator needs no initializer:
        ``aggregate(agg.sum("amount"))``.
        """
        aggregation = aggregate_of(initializer, aggregator, expression=self._windowing.takes_expressions)
        return self._fold_to_result(Fold(aggregation, Materialized.of(materialized), name_of(name)))


@with_java_names
class KGroupedStream(FoldingAggregations[K, V, K]):
    """A grouped stream: Kafka's ``KGroupedStream``. Records with a null key or value are dropped."""

    def __init__(self, grouping: Grouping) -> None:
        super().__init__(grouping, Unwindowed())

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Start a cogroup: a table into which several streams are aggregated, each by its own function.

        Args:
            aggregator: The function of this stream, ``aggregator(key, value, aggregate)``. See `CogroupedKStream`.
        """
        return CogroupedKStream(cogroup(self._handle, aggregator))

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows | UnlimitedWindows) -> TimeWindowedKStream[K, V]: ...

    def windowed_by(self, windows: Windows) -> SessionWindowedKStream[K, V] | TimeWindowedKStream[K, V]:
        """Group by window as well as by key (``windowedBy``)."""
        return windowed_stream(self._handle, windows)


@with_java_names
class TimeWindowedKStream(FoldingAggregations[K, V, "Windowed[K]"]):
    """A stream grouped by key and by tumbling, hopping, sliding or unlimited windows: Kafka's ``TimeWindowedKStream``.

    Records for windows that have closed are dropped and counted.

    >>> from penstock import TimeWindows
    >>> from penstock.testing import try_out
    >>> windowed = lambda s: s.group_by_key().windowed_by(TimeWindows.of("1 minute"))
    >>> counts = try_out(lambda s: windowed(s).count(), [("a", 1, 0), ("a", 1, 61_000)])
    >>> [(key.key, key.window.start, count) for key, count in counts]
    [('a', 0, 1), ('a', 60000, 1)]
    """

    def __init__(self, grouping: Grouping, windowing: InWindows) -> None:
        super().__init__(grouping, windowing)
        self._windowed = windowing

    def emit_strategy(self, emit: EmitStrategy, *, idle: DurationLike | None = None) -> TimeWindowedKStream[K, V]:
        """Choose when results are sent (``emitStrategy``).

        Args:
            emit: "on_window_update" sends every result, "on_window_close" only the final one of each window.
            idle: Not in Kafka. If no record arrives for this wall-clock time, all windows close and their results are
                sent; later records for them are late. Without it the last windows of a stream stay open until a later
                record arrives.
        """
        return TimeWindowedKStream(self._handle, self._windowed.emitting(emit, idle))


@with_java_names
class SessionWindowedKStream(StreamAggregations[K, V, "Windowed[K]"]):
    """A stream grouped by key and session: Kafka's ``SessionWindowedKStream``.

    A session starts with its first record and ends with its last; both times are inclusive. A record between two
    sessions that is near to both merges them: their results are deleted, and the result of the whole is sent.

    >>> from penstock import SessionWindows
    >>> from penstock.testing import try_out
    >>> sessions = lambda s: s.group_by_key().windowed_by(SessionWindows.of("1 minute"))
    >>> counts = try_out(lambda s: sessions(s).count(), [("a", 1, 0), ("a", 1, 50_000)])
    >>> [(key.window.start, key.window.end, count) for key, count in counts]
    [(0, 0, 1), (0, 0, None), (0, 50000, 2)]
    """

    def __init__(self, grouping: Grouping, windowing: InWindows) -> None:
        super().__init__(grouping, windowing)
        self._windowed = windowing

    @overload
    def aggregate(
        self,
        initializer: BuiltInAggregator,
        aggregator: None = None,
        merger: None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Windowed[K], Any]: ...

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Windowed[K], A]: ...

    @overload
    def aggregate(
        self,
        initializer: A,
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Windowed[K], A]: ...

    def aggregate(
        self,
        initializer: Any,
        aggregator: Any = None,
        merger: Any = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Windowed[K], Any]:
        """Aggregate the values of each session by ``aggregator(key, value, aggregate)``.

        The first aggregate is a constant or ``initializer()``. ``merger(key, left, right)`` merges the aggregates of
        two sessions, ``left`` the earlier one; it is also called with a first aggregate. A built-in aggregator needs
        no merger: ``aggregate(agg.sum("amount"))``.
        """
        builtin = initializer if aggregator is None else aggregator
        if merger is None and isinstance(builtin, BuiltInAggregator):
            merger = builtin.merge
        aggregation = aggregate_of(initializer, aggregator, merger=merger, expression=False)
        if aggregation.merger is None:
            raise TopologyError(
                "aggregate() of sessions takes a merger; it is missing",
                hint="Write aggregate(0, lambda key, value, total: ..., lambda key, left, right: ...).",
            )
        return self._fold_to_result(Fold(aggregation, Materialized.of(materialized), name_of(name)))

    def emit_strategy(self, emit: EmitStrategy, *, idle: DurationLike | None = None) -> SessionWindowedKStream[K, V]:
        """Choose when results are sent; see `TimeWindowedKStream.emit_strategy`.

        A session closes when gap and grace have passed since its end.
        """
        return SessionWindowedKStream(self._handle, self._windowed.emitting(emit, idle))


def windowed_stream(
    grouping: Grouping, windows: Windows
) -> TimeWindowedKStream[Any, Any] | SessionWindowedKStream[Any, Any]:
    """Return the stream of `KGroupedStream.windowed_by`."""
    if isinstance(windows, SessionWindows):
        return SessionWindowedKStream(grouping, InWindows(windows))
    if isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
        return TimeWindowedKStream(grouping, InWindows(windows))
    raise TopologyError(f"windowed_by() takes windows, not {windows!r}", hint='For example TimeWindows.of("1 minute").')


_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"


@dataclass(frozen=True, slots=True)
class CogroupFold:
    """One call of ``aggregate`` on cogrouped streams."""

    initializer: object
    materialized: Materialized | None
    name: str | None
    merger: Function | None = None


@dataclass(frozen=True)
class Cogrouping:
    """The grouped streams with their aggregators, in order; repartition topics are shared by all aggregations."""

    members: tuple[tuple[Grouping, Function], ...]
    topics: dict[int, RepartitionGraph] = field(default_factory=dict)

    @property
    def stream(self) -> StreamHandle:
        """The first of the streams."""
        return self.members[0][0].stream

    def adding(self, grouping: Grouping, aggregator: object) -> Cogrouping:
        """Return the group with one more stream; one that is there already gets the new aggregator."""
        same_builder(self.stream, grouping.stream, "cogroup")
        members = dict(enumerate(self.members))
        at = next((i for i, (one, _) in members.items() if one is grouping), len(members))
        members[at] = (grouping, _aggregator(aggregator))
        return replace(self, members=tuple(members.values()))

    def fold(self, fold: CogroupFold, windowing: Windowing) -> TableHandle:
        """Add a processor for each stream, and the one that merges them (``CogroupedStreamAggregateBuilder``)."""
        first, windows = self.stream, windowing.spec
        builder = first.builder
        store = named(fold.materialized, builder, _AGGREGATE)
        key = store.key_serde if store.key_serde is not None else first.key_serde
        value = store.value_serde if store.value_serde is not None else UNKNOWN
        spec = windowing.store(store, key, value)
        parents = [self._grouped(grouping, spec.name) for grouping, _ in self.members]
        builder.copartition({source for _, sources in parents for source in sources})
        state, base = AggregatedTable(spec), fold.name
        members: list[GraphNode] = []
        for number, (parent, _) in enumerate(parents):
            node = builder.names.processor(_AGGREGATE, base, f"-cogroup-agg-{number}")
            operation = partial(CogroupMember, number, windows)
            graph = ProcessorGraph(name=node, operation=operation, own_stores=state.own_stores)
            graph.output_versioned = spec.kind == "versioned"
            graph.grace_ms = windowing.grace_ms
            builder.add(parent, graph)
            members.append(graph)
        node = builder.names.processor("COGROUPKSTREAM-MERGE-", base, "-cogroup-merge")
        aggregators, start = tuple(fn for _, fn in self.members), initial(fold.initializer)
        merge = ProcessorGraph(
            name=node,
            operation=lambda: CogroupMerge(aggregators, start, spec.name, windows, fold.merger, state.send_old),
        )
        builder.add(members, merge)
        sources = frozenset(source for _, each in parents for source in each)
        queried = spec.name if fold.materialized is not None and fold.materialized.name is not None else None
        return TableHandle(builder, merge, node, windowing.keys(key), value, sources, state, queried)

    def _grouped(self, grouping: Grouping, store: str) -> tuple[GraphNode, frozenset[str]]:
        """Return the node that sends a stream's records by key, and its sources."""
        above = grouping.stream
        if not above.needs_repartition:
            return above.graph, above.sources
        new_topic = grouping.make_topic(store)
        topic = self.topics.get(id(grouping))
        if topic is None:
            above.builder.add(above.graph, new_topic)
            topic = self.topics[id(grouping)] = new_topic
        return topic, frozenset({topic.name})


def cogroup(grouping: Grouping, aggregator: object) -> Cogrouping:
    """Start a cogroup: `KGroupedStream.cogroup`."""
    return Cogrouping(((grouping, _aggregator(aggregator)),))


def _aggregator(aggregator: object) -> Function:
    if isinstance(aggregator, BuiltInAggregator) and not aggregator.is_final:
        raise TopologyError(
            f"cogroup() cannot take the result of {aggregator!r}: other streams change the same aggregate",
            hint="Cogroup what it comes from, such as agg.sum() and agg.count(), and take the result by map_values().",
        )
    return Function.wrap(aggregator, verb="cogroup", allowed=(3,), expression=False)


@with_java_names
class CogroupedKStream(Fluent[Cogrouping], Generic[K, A]):
    """Grouped streams that are aggregated into one table, each by its own aggregator: Kafka's ``CogroupedKStream``.

    >>> from penstock.testing import try_out
    >>> def total(stream):
    ...     paid = stream.filter(lambda value: value > 0).group_by_key()
    ...     refunded = stream.filter(lambda value: value < 0).group_by_key()
    ...     return (
    ...         paid.cogroup(lambda key, value, balance: balance + value)
    ...         .cogroup(refunded, lambda key, value, balance: balance + 2 * value)
    ...         .aggregate(0)
    ...     )
    >>> try_out(total, [("a", 10), ("a", -3)])
    [('a', 10), ('a', 4)]
    """

    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Add a stream with its aggregator, ``aggregator(key, value, aggregate)``."""
        check_kind(grouped, KGroupedStream, "cogroup", "Group the stream first: stream.group_by_key().")
        return CogroupedKStream(self._handle.adding(self._handle_of(grouped), aggregator))

    def aggregate(
        self,
        initializer: Callable[[], A] | A | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]:
        """Aggregate the values of each key, in the order of the records of all streams.

        Args:
            initializer: The first aggregate: a constant, or a function that makes it. Built-in aggregators start from
                None, the default.
            materialized: The table's store.
            name: The name of the processors: ``<name>-cogroup-agg-<number>`` and ``<name>-cogroup-merge``.
        """
        fold = CogroupFold(initializer, Materialized.of(materialized), name_of(name))
        return KTable(self._handle.fold(fold, Unwindowed()))

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, A]: ...

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows
    ) -> TimeWindowedCogroupedKStream[K, A]: ...

    def windowed_by(
        self, windows: Windows
    ) -> SessionWindowedCogroupedKStream[K, A] | TimeWindowedCogroupedKStream[K, A]:
        """Group by window as well as by key (``windowedBy``)."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._handle, InWindows(windows))
        if isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
            return TimeWindowedCogroupedKStream(self._handle, InWindows(windows))
        raise TopologyError(
            f"windowed_by() takes windows, not {windows!r}", hint='For example TimeWindows.of("1 minute").'
        )


class _WindowedCogrouped(Fluent[Cogrouping], Generic[K, A]):
    """Cogrouped streams and their windows."""

    def __init__(self, streams: Cogrouping, windowing: InWindows) -> None:
        super().__init__(streams)
        self._windowing = windowing


@with_java_names
class TimeWindowedCogroupedKStream(_WindowedCogrouped[K, A]):
    """Cogrouped streams in windows of any kind but sessions: Kafka's ``TimeWindowedCogroupedKStream``."""

    def aggregate(
        self,
        initializer: Callable[[], A] | A | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Windowed[K], A]:
        """Aggregate the values of each key and window; see `CogroupedKStream.aggregate`."""
        fold = CogroupFold(initializer, Materialized.of(materialized), name_of(name))
        return KTable(self._handle.fold(fold, self._windowing))


@with_java_names
class SessionWindowedCogroupedKStream(_WindowedCogrouped[K, A]):
    """Cogrouped streams in session windows: Kafka's ``SessionWindowedCogroupedKStream``."""

    def aggregate(
        self,
        initializer: Callable[[], A] | A | None = None,
        merger: Callable[[K, A, A], A] | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Windowed[K], A]:
        """Aggregate the values of each session; ``merger(key, left, right)`` merges the aggregates of two sessions.

        Streams that all have the same built-in aggregator need no merger.
        """
        builtin = {fn.fn for _, fn in self._handle.members if isinstance(fn.fn, BuiltInAggregator)}
        if merger is None and len(builtin) == 1:
            merger = builtin.pop().merge
        if merger is None:
            raise TopologyError(
                "aggregate() of sessions takes a merger; it is missing",
                hint="Write aggregate(0, lambda key, left, right: left + right).",
            )
        fn = Function.wrap(merger, verb="aggregate: merger", allowed=(3,), passed=MERGED, expression=False)
        fold = CogroupFold(initializer, Materialized.of(materialized), name_of(name), fn)
        return KTable(self._handle.fold(fold, self._windowing))


@with_java_names
class KGroupedTable(Fluent[TableGrouping], Generic[K, V]):
    """A grouped table: Kafka's ``KGroupedTable``. A changed row leaves its old group and enters the new one."""

    def count(self, materialized: Materialized | str | None = None, *, name: Name = None) -> KTable[K, int]:
        """Count the rows of each group.

        >>> from penstock.testing import try_out
        >>> swapped = lambda s: s.to_table().group_by(lambda key, value: (value, key))
        >>> try_out(lambda s: swapped(s).count(), [("a", "x"), ("b", "x"), ("a", "y")])
        [('x', 1), ('x', 2), ('x', 1), ('y', 1)]
        """
        fold = Fold(ops.Aggregation("count"), Materialized.of(materialized), name_of(name), resolve("long"))
        return KTable(self._handle.fold(fold))

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V]:
        """Combine the values of each group; both functions take (aggregate, value).

        Args:
            adder: Adds the value of a row that entered the group.
            subtractor: Removes the value of a row that left the group.
            materialized: The store of the result.
            name: The name of the processors.
        """
        aggregation = ops.Aggregation(
            "reduce",
            Function.wrap(adder, verb="reduce", allowed=(2,), expression=False),
            subtractor=Function.wrap(subtractor, verb="reduce: subtractor", allowed=(2,), expression=False),
        )
        value_serde = self._handle.rows.value_serde
        return KTable(self._handle.fold(Fold(aggregation, Materialized.of(materialized), name_of(name), value_serde)))

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]: ...

    @overload
    def aggregate(
        self,
        initializer: A,
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]: ...

    def aggregate(
        self,
        initializer: Callable[[], A] | A,
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]:
        """Aggregate the values of each group; both functions take (key, value, aggregate).

        Args:
            initializer: The first aggregate: a constant, or a function that makes it.
            adder: Adds the value of a row that entered the group.
            subtractor: Removes the value of a row that left the group.
            materialized: The store of the result.
            name: The name of the processors.
        """
        check_given(subtractor, Callable, "aggregate(): subtractor", "a function", "It undoes what the adder did.")  # type: ignore[arg-type]
        aggregation = aggregate_of(initializer, adder, subtractor=subtractor)
        return KTable(self._handle.fold(Fold(aggregation, Materialized.of(materialized), name_of(name))))
