"""CogroupedKStream: several grouped streams that are aggregated into one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from penstock.api.groups.agg import BuiltInAggregator
from penstock.api.groups.cogrouping import CogroupFold, Cogrouping
from penstock.api.groups.grouped import KGroupedStream
from penstock.api.handle import Fluent, check_kind, name_of
from penstock.api.options import Materialized, Named
from penstock.api.table import KTable
from penstock.api.windowed.build import InWindows, Unwindowed
from penstock.api.windowed.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.operations.functions import MERGED, Function

if TYPE_CHECKING:
    from penstock.serde.windowed import Windowed

__all__ = ["CogroupedKStream", "SessionWindowedCogroupedKStream", "TimeWindowedCogroupedKStream"]

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
