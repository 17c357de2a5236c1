"""KGroupedStream: records grouped by key, ready to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.api.agg import BuiltInAggregator
from penstock.api.handle import Handle, check_kind, name_of
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Grouped, Materialized, Named
from penstock.api.serdes import UNKNOWN, for_internal, for_topic, resolve
from penstock.api.table import KTable
from penstock.api.windows import TimeWindows, UnlimitedWindows
from penstock.errors import TopologyError
from penstock.topology import operations as ops
from penstock.topology.functions import Function
from penstock.topology.graph import GraphNode, ProcessorGraph, RepartitionGraph
from penstock.topology.tables import AggregatedTable

if TYPE_CHECKING:
    from penstock.api.stream import KStream
    from penstock.api.windowed import TimeWindowedKStream
    from penstock.topology.stores import StoreSpec

__all__ = ["Grouping", "KGroupedStream", "aggregate_of", "count_name", "grouped_stream", "initial"]

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


class KGroupedStream(Generic[K, V]):
    """A grouped stream: Kafka's ``KGroupedStream``. Records with a null key or value are dropped."""

    def __init__(self, grouping: Grouping) -> None:
        self._grouping = grouping

    def count(self, materialized: Materialized | str | None = None, *, name: Name = None) -> KTable[K, int]:
        """Counts the records of each key.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by_key().count(), [("a", "x"), ("a", "y")])
        [('a', 1), ('a', 2)]
        """
        given = Materialized.of(materialized)
        count_name(self._grouping.handle, given)
        return self._aggregate("KSTREAM-AGGREGATE-", ops.Aggregation("count"), given, name, resolve("long"))

    def reduce(
        self, reducer: Callable[[V, V], V], materialized: Materialized | str | None = None, *, name: Name = None
    ) -> KTable[K, V]:
        """Combines the values of each key: ``reducer(aggregate, value)``; the first value starts.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.group_by_key().reduce(lambda a, b: a + b), [("a", 2), ("a", 3)])
        [('a', 2), ('a', 5)]
        """
        fn = Function.wrap(reducer, verb="reduce", allowed=(2,))
        aggregation = ops.Aggregation("reduce", fn)
        value_serde = self._grouping.handle.value_serde
        return self._aggregate("KSTREAM-REDUCE-", aggregation, Materialized.of(materialized), name, value_serde)

    def aggregate(
        self,
        initializer: Callable[[], A] | A,
        aggregator: Callable[[K, V, A], A] | Any = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]:
        """Folds the values of each key: ``aggregator(key, value, aggregate)``, from a constant or ``initializer()``.

        A built-in aggregator needs no initializer: ``aggregate(agg.sum("amount"))``.
        """
        aggregation = aggregate_of(initializer, aggregator)
        return self._aggregate("KSTREAM-AGGREGATE-", aggregation, Materialized.of(materialized), name, UNKNOWN)

    def windowed_by(self, windows: TimeWindows | UnlimitedWindows) -> TimeWindowedKStream[K, V]:
        """Groups by window, too (``windowedBy``)."""
        from penstock.api.windowed import TimeWindowedKStream

        if not isinstance(windows, TimeWindows | UnlimitedWindows):
            raise TopologyError(
                f"windowed_by() takes windows, not {windows!r}", hint='For example TimeWindows.of("1 minute").'
            )
        return TimeWindowedKStream(self._grouping, windows)

    def _aggregate(
        self,
        prefix: str,
        aggregation: ops.Aggregation,
        given: Materialized | None,
        name: Name,
        value_serde: Any,
    ) -> KTable[Any, Any]:
        handle = self._grouping.handle
        store = named(given, handle.builder, prefix)
        node = handle.builder.names.processor(prefix, name_of(name))
        key = store.key_serde if store.key_serde is not None else handle.key_serde
        value = store.value_serde if store.value_serde is not None else value_serde
        return self._grouping.aggregate(
            node,
            key_value_spec(store, key, value),
            lambda state: ops.StreamAggregate(aggregation, state.spec.name, state.send_old),
            key,
            value,
            queryable=given is not None and given.name is not None,
        )


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


def count_name(handle: Handle, given: Materialized | None) -> None:
    """Burns the name that Kafka burns for ``count(Materialized)`` without a store name."""
    if given is not None and given.name is None:
        handle.builder.names.store("KSTREAM-AGGREGATE-")


def aggregate_of(
    initializer: object, aggregator: object, *, subtractor: object = None, verb: str = "aggregate"
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
        Function.wrap(aggregator, verb=verb, allowed=(3,), expression=subtractor is None),
        initial(initializer),
        None if subtractor is None else Function.wrap(subtractor, verb=verb, allowed=(3,), expression=False),
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
