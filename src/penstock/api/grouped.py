"""KGroupedStream: records grouped by key, ready to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.api.agg import BuiltInAggregator
from penstock.api.handle import Handle, check_kind, name_of
from penstock.api.materialize import named
from penstock.api.options import Grouped, Materialized, Named
from penstock.api.serdes import UNKNOWN, for_internal, for_topic, resolve
from penstock.api.table import KTable
from penstock.api.windowing import Unwindowed, Windowing
from penstock.errors import TopologyError
from penstock.topology import operations as ops
from penstock.topology.functions import Function
from penstock.topology.graph import GraphNode, ProcessorGraph, RepartitionGraph
from penstock.topology.tables import AggregatedTable

if TYPE_CHECKING:
    from penstock.api.cogrouped import CogroupedKStream
    from penstock.api.stream import KStream
    from penstock.api.windowed import SessionWindowedKStream, TimeWindowedKStream
    from penstock.api.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
    from penstock.topology.stores import StoreSpec

__all__ = [
    "FoldingAggregations",
    "Grouping",
    "KGroupedStream",
    "StreamAggregations",
    "aggregate_of",
    "grouped_stream",
    "initial",
]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
Name = str | Named | None


@dataclass
class Grouping:
    """What all aggregations of one grouped stream share: Kafka's ``GroupedStreamAggregateBuilder``."""

    handle: Handle
    needs_repartition: bool
    topic_name: str | None
    _shared: RepartitionGraph | None = field(default=None, init=False)

    def aggregate(
        self,
        node: str,
        spec: StoreSpec,
        operation: Callable[[AggregatedTable], ops.Operation],
        key_serde: Any,
        value_serde: Any,
        *,
        queryable: bool,
        grace_ms: int | None = None,
    ) -> KTable[Any, Any]:
        """Adds the aggregation, behind a repartition topic where the key has changed."""
        above, builder = self.handle, self.handle.builder
        parent: GraphNode = above.graph
        sources = above.sources
        if self.needs_repartition:
            # The names are burnt for every aggregation, even where a topic named by the user is shared.
            made = builder.repartition_node(
                self.topic_name or spec.name, for_topic(above.key_serde), for_internal(above.value_serde)
            )
            if self._shared is None or self.topic_name is None:
                self._shared = made
            builder.add(parent, self._shared)
            parent = self._shared
            sources = frozenset({made.name})
        state = AggregatedTable(spec)
        graph = ProcessorGraph(name=node, operation=lambda: operation(state), own_stores=state.own_stores)
        graph.output_versioned = spec.kind == "versioned"
        graph.grace_ms = grace_ms
        builder.add(parent, graph)
        handle = Handle(builder, graph, node, key_serde, value_serde, sources)
        return KTable(handle, state, spec.name if queryable else None)


R = TypeVar("R")  # the keys of the result: plain or windowed


class StreamAggregations(Generic[K, V, R]):
    """The aggregations that every grouped stream has, windowed or not."""

    def __init__(self, grouping: Grouping, windowing: Windowing) -> None:
        self._grouping = grouping
        self._windowing = windowing

    def count(self, materialized: Materialized | str | None = None, *, name: Name = None) -> KTable[R, int]:
        """Counts the records of each key (and window).

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by_key().count(), [("a", "x"), ("a", "y")])
        [('a', 1), ('a', 2)]
        """
        handle, given = self._grouping.handle, Materialized.of(materialized)
        if given is not None and given.name is None and self._windowing.burns_count_name:
            handle.builder.names.store("KSTREAM-AGGREGATE-")
        return self._fold("KSTREAM-AGGREGATE-", ops.Aggregation("count"), given, name, resolve("long"))

    def reduce(
        self, reducer: Callable[[V, V], V], materialized: Materialized | str | None = None, *, name: Name = None
    ) -> KTable[R, V]:
        """Combines the values of each key (and window): ``reducer(aggregate, value)``; the first value starts.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by_key().reduce(lambda a, b: a + b), [("a", 2), ("a", 3)])
        [('a', 2), ('a', 5)]
        """
        by_column = self._windowing.takes_expressions
        fn = Function.wrap(reducer, verb="reduce", allowed=(2,), expression=by_column)
        value_serde = self._grouping.handle.value_serde
        given = Materialized.of(materialized)
        return self._fold("KSTREAM-REDUCE-", ops.Aggregation("reduce", fn), given, name, value_serde)

    def _fold(
        self,
        prefix: str,
        aggregation: ops.Aggregation,
        given: Materialized | None,
        name: Name,
        value_serde: Any,
    ) -> KTable[Any, Any]:
        handle, windowing = self._grouping.handle, self._windowing
        store = named(given, handle.builder, prefix)
        node = handle.builder.names.processor(prefix, name_of(name))
        key = store.key_serde if store.key_serde is not None else handle.key_serde
        value = store.value_serde if store.value_serde is not None else value_serde
        return self._grouping.aggregate(
            node,
            windowing.store(store, key, value),
            lambda state: windowing.operation(aggregation, state),
            windowing.keys(key),
            value,
            queryable=given is not None and given.name is not None,
            grace_ms=windowing.grace_ms,
        )

    def _fold_to_result(
        self, aggregation: ops.Aggregation, materialized: Materialized | str | None, name: Name
    ) -> KTable[Any, Any]:
        """An ``aggregate``; a mean and the like are taken behind the table that keeps what they come from."""
        given = Materialized.of(materialized)
        builtin = None if aggregation.aggregator is None else aggregation.aggregator.fn
        if not isinstance(builtin, BuiltInAggregator) or builtin.is_final:
            return self._fold("KSTREAM-AGGREGATE-", aggregation, given, name, UNKNOWN)
        kept = None if given is None else replace(given, value_serde=None)
        table = self._fold("KSTREAM-AGGREGATE-", aggregation, kept, name, UNKNOWN)
        serde = None if given is None else given.value_serde
        shown = None if serde is None else Materialized(value_serde=serde)
        return table.map_values(builtin.result, shown, name=None if name is None else f"{name_of(name)}-result")


class FoldingAggregations(StreamAggregations[K, V, R]):
    """With an ``aggregate`` that takes an initializer and an aggregator; that of sessions takes a merger, too."""

    def aggregate(
        self,
        initializer: Callable[[], A] | A,
        aggregator: Callable[[K, V, A], A] | Any = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[R, A]:
        """Folds the values of each key (and window): ``aggregator(key, value, aggregate)``.

        It starts from a constant or ``initializer()``. A built-in aggregator needs no initializer:
        ``aggregate(agg.sum("amount"))``.
        """
        aggregation = aggregate_of(initializer, aggregator, expression=self._windowing.takes_expressions)
        return self._fold_to_result(aggregation, materialized, name)


class KGroupedStream(FoldingAggregations[K, V, K]):
    """A grouped stream: Kafka's ``KGroupedStream``. Records with a null key or value are dropped."""

    def __init__(self, grouping: Grouping) -> None:
        super().__init__(grouping, Unwindowed())

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Starts a cogroup: this stream folds by ``aggregator(key, value, aggregate)`` into a table that others share.

        See `CogroupedKStream`.
        """
        from penstock.api.cogrouped import cogroup_stream

        return cogroup_stream(self._grouping, aggregator)

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows | UnlimitedWindows) -> TimeWindowedKStream[K, V]: ...

    def windowed_by(self, windows: Windows) -> SessionWindowedKStream[K, V] | TimeWindowedKStream[K, V]:
        """Groups by window, too (``windowedBy``)."""
        from penstock.api.windowed import windowed_stream

        return windowed_stream(self._grouping, windows)


def grouped_stream(stream: KStream[Any, Any], grouped: Grouped | None, name: str | None) -> KGroupedStream[Any, Any]:
    """Groups by the present key; serdes given in ``grouped`` win over those inherited."""
    options = grouped or Grouped()
    check_kind(options, Grouped, "group_by", "Write Grouped(...), or name= for a name alone.")
    above = stream._handle  # noqa: SLF001
    handle = Handle(
        above.builder,
        above.graph,
        above.node,
        options.key_serde if options.key_serde is not None else above.key_serde,
        options.value_serde if options.value_serde is not None else above.value_serde,
        above.sources,
    )
    return KGroupedStream(Grouping(handle, stream._needs_repartition, options.name or name))  # noqa: SLF001


def aggregate_of(
    initializer: object,
    aggregator: object,
    *,
    subtractor: object = None,
    merger: object = None,
    verb: str = "aggregate",
    expression: bool = True,
) -> ops.Aggregation:
    """The aggregation of an initializer and functions of (key, value, aggregate); built-in ones start from nothing."""
    if aggregator is None:
        if not isinstance(initializer, BuiltInAggregator):
            raise TopologyError(
                f"{verb}() takes an initializer and an aggregator; the aggregator is missing",
                hint='Write aggregate(0, lambda key, value, total: ...), or aggregate(agg.sum("field")).',
            )
        initializer, aggregator = None, initializer
    return ops.Aggregation(
        "aggregate",
        Function.wrap(aggregator, verb=verb, allowed=(3,), expression=expression and subtractor is None),
        initial(initializer),
        *(
            None if fn is None else Function.wrap(fn, verb=verb, allowed=(3,), expression=False)
            for fn in (subtractor, merger)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any

    def __call__(self) -> Any:
        return self.value


def initial(initializer: object) -> Callable[[], Any]:
    """An initializer: a callable without arguments, or a constant that nobody can change in place."""
    if callable(initializer):
        return initializer
    if isinstance(initializer, list | dict | set | bytearray):
        raise TopologyError(
            f"aggregate() starts with the {type(initializer).__name__} {initializer!r}, which all keys would share",
            hint=f"Pass a function that makes a new one: {type(initializer).__name__}, or lambda: {initializer!r}.",
        )
    return _Constant(initializer)
