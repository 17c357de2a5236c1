"""CogroupedKStream: several grouped streams that fold into one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.api.agg import BuiltInAggregator
from penstock.api.grouped import Grouping, KGroupedStream, initial
from penstock.api.handle import Handle, check_kind, name_of, same_builder
from penstock.api.materialize import named
from penstock.api.options import Materialized, Named
from penstock.api.serdes import UNKNOWN, for_internal, for_topic
from penstock.api.table import KTable
from penstock.api.windowing import InWindows, Unwindowed, Windowing
from penstock.api.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
from penstock.errors import TopologyError
from penstock.topology.cogroup import CogroupMember, CogroupMerge
from penstock.topology.functions import Function
from penstock.topology.graph import GraphNode, ProcessorGraph, RepartitionGraph
from penstock.topology.tables import AggregatedTable

if TYPE_CHECKING:
    from penstock.serde.windowed import Windowed
    from penstock.topology.windows import WindowSpec

__all__ = ["CogroupedKStream", "SessionWindowedCogroupedKStream", "TimeWindowedCogroupedKStream", "cogroup_stream"]

K = TypeVar("K")
A = TypeVar("A")
R = TypeVar("R")
V = TypeVar("V")
Name = str | Named | None
Aggregating = Callable[[Any, Any, Any], Any]

_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"


@dataclass(frozen=True)
class _Streams:
    """The grouped streams with their aggregators, in order; repartition topics are shared by all aggregations."""

    groupings: tuple[tuple[Grouping, Function], ...]
    topics: dict[int, RepartitionGraph] = field(default_factory=dict)

    def adding(self, grouping: Grouping, aggregator: Function) -> _Streams:
        """With one more stream; one that is there already gets the new aggregator."""
        known = dict(enumerate(self.groupings))
        at = next((i for i, (one, _) in known.items() if one is grouping), len(known))
        known[at] = (grouping, aggregator)
        return replace(self, groupings=tuple(known.values()))

    def aggregate(
        self,
        windowing: Windowing,
        windows: WindowSpec | None,
        initializer: object,
        merger: Function | None,
        materialized: Materialized | str | None,
        name: Name,
    ) -> KTable[Any, Any]:
        """Adds a processor for each stream, and the one that merges them (``CogroupedStreamAggregateBuilder``)."""
        first = self.groupings[0][0].handle
        builder, given = first.builder, Materialized.of(materialized)
        store = named(given, builder, _AGGREGATE)
        key = store.key_serde if store.key_serde is not None else first.key_serde
        value = store.value_serde if store.value_serde is not None else UNKNOWN
        spec = windowing.store(store, key, value)
        parents = [self._grouped(grouping, spec.name) for grouping, _ in self.groupings]
        builder.copartition({source for _, sources in parents for source in sources})
        state, base = AggregatedTable(spec), name_of(name)
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
        aggregators, start = tuple(fn for _, fn in self.groupings), initial(initializer)
        merge = ProcessorGraph(
            name=node,
            operation=lambda: CogroupMerge(aggregators, start, spec.name, windows, merger, state.send_old),
        )
        builder.add(members, merge)
        sources = frozenset(source for _, each in parents for source in each)
        handle = Handle(builder, merge, node, windowing.keys(key), value, sources)
        return KTable(handle, state, spec.name if given is not None and given.name is not None else None)

    def _grouped(self, grouping: Grouping, store: str) -> tuple[GraphNode, frozenset[str]]:
        """The node that gives a stream's records by key, and its sources."""
        above = grouping.handle
        if not grouping.needs_repartition:
            return above.graph, above.sources
        made = above.builder.repartition_node(
            grouping.topic_name or store, for_topic(above.key_serde), for_internal(above.value_serde)
        )
        known = self.topics.get(id(grouping))
        if known is None:
            above.builder.add(above.graph, made)
            known = self.topics[id(grouping)] = made
        return known, frozenset({known.name})


class CogroupedKStream(Generic[K, A]):
    """Grouped streams that fold into one table, each by its own aggregator: Kafka's ``CogroupedKStream``.

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

    def __init__(self, streams: _Streams) -> None:
        self._streams = streams

    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Adds a stream with its aggregator, ``aggregator(key, value, aggregate)``."""
        check_kind(grouped, KGroupedStream, "cogroup", "Group the stream first: stream.group_by_key().")
        same_builder(self._streams.groupings[0][0].handle, grouped._grouping.handle, "cogroup")  # noqa: SLF001
        return CogroupedKStream(self._streams.adding(grouped._grouping, _aggregator(aggregator)))  # noqa: SLF001

    def aggregate(
        self,
        initializer: Callable[[], A] | A | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, A]:
        """Folds the values of each key, in the order of the records of all streams.

        Args:
            initializer: What an aggregate starts from: a constant, or a function that makes it. None, the default, is
                what built-in aggregators start from.
            materialized: The table's store.
            name: Of the processors: ``<name>-cogroup-agg-<number>`` and ``<name>-cogroup-merge``.
        """
        return self._streams.aggregate(Unwindowed(), None, initializer, None, materialized, name)

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, A]: ...

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows
    ) -> TimeWindowedCogroupedKStream[K, A]: ...

    def windowed_by(
        self, windows: Windows
    ) -> SessionWindowedCogroupedKStream[K, A] | TimeWindowedCogroupedKStream[K, A]:
        """Groups by window, too (``windowedBy``)."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._streams, InWindows(windows))
        if isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
            return TimeWindowedCogroupedKStream(self._streams, InWindows(windows))
        raise TopologyError(
            f"windowed_by() takes windows, not {windows!r}", hint='For example TimeWindows.of("1 minute").'
        )


class TimeWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams in windows of any kind but sessions: Kafka's ``TimeWindowedCogroupedKStream``."""

    def __init__(self, streams: _Streams, windowing: InWindows) -> None:
        self._streams = streams
        self._windowing = windowing

    def aggregate(
        self,
        initializer: Callable[[], A] | A | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Windowed[K], A]:
        """Folds the values of each key and window; arguments as for the plain ``aggregate``."""
        windows = self._windowing.windows.spec
        return self._streams.aggregate(self._windowing, windows, initializer, None, materialized, name)


class SessionWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams in session windows: Kafka's ``SessionWindowedCogroupedKStream``."""

    def __init__(self, streams: _Streams, windowing: InWindows) -> None:
        self._streams = streams
        self._windowing = windowing

    def aggregate(
        self,
        initializer: Callable[[], A] | A | None = None,
        merger: Callable[[K, A, A], A] | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Windowed[K], A]:
        """Folds the values of each session; ``merger(key, left, right)`` makes one aggregate of those of two sessions.

        Streams that all have the same built-in aggregator need no merger.
        """
        builtin = {fn.fn for _, fn in self._streams.groupings if isinstance(fn.fn, BuiltInAggregator)}
        if merger is None and len(builtin) == 1:
            merger = builtin.pop().merge
        if merger is None:
            raise TopologyError(
                "aggregate() of sessions takes a merger; it is missing",
                hint="Write aggregate(0, lambda key, left, right: left + right).",
            )
        fn = Function.wrap(merger, verb="aggregate", allowed=(3,), expression=False)
        windows = self._windowing.windows.spec
        return self._streams.aggregate(self._windowing, windows, initializer, fn, materialized, name)


def cogroup_stream(grouping: Grouping, aggregator: object) -> CogroupedKStream[Any, Any]:
    """`KGroupedStream.cogroup`."""
    return CogroupedKStream(_Streams(((grouping, _aggregator(aggregator)),)))


def _aggregator(aggregator: object) -> Function:
    if isinstance(aggregator, BuiltInAggregator) and not aggregator.is_final:
        raise TopologyError(
            f"cogroup() cannot take the result of {aggregator!r}: other streams change the same aggregate",
            hint="Cogroup what it comes from, such as agg.sum() and agg.count(), and take the result by map_values().",
        )
    return Function.wrap(aggregator, verb="cogroup", allowed=(3,), expression=False)
