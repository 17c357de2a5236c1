"""CogroupedKStream: several grouped streams that are aggregated into one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from penstock.api.groups.agg import BuiltInAggregator
from penstock.api.groups.aggregations import initial
from penstock.api.groups.grouped import Grouping, KGroupedStream
from penstock.api.handle import Fluent, StreamHandle, TableHandle, check_kind, name_of, same_builder
from penstock.api.materialize import named
from penstock.api.options import Materialized, Named
from penstock.api.serdes import UNKNOWN
from penstock.api.table import KTable
from penstock.api.windowed.windows import (
    InWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Unwindowed,
    Windowing,
    Windows,
)
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.building.graph import GraphNode, ProcessorGraph, RepartitionGraph
from penstock.topology.operations.base import CogroupMember, CogroupMerge
from penstock.topology.operations.functions import MERGED, Function
from penstock.topology.tables import AggregatedTable

if TYPE_CHECKING:
    from penstock.serde.windowed import Windowed

__all__ = ["CogroupFold", "CogroupedKStream", "Cogrouping", "cogroup"]

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


K = TypeVar("K")
A = TypeVar("A")
V = TypeVar("V")
Name = str | Named | None


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
