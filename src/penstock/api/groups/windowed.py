"""TimeWindowedKStream and SessionWindowedKStream: records grouped by key and window."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.api.groups.agg import BuiltInAggregator
from penstock.api.groups.aggregations import Fold, aggregate_of
from penstock.api.groups.grouped import FoldingAggregations, StreamAggregations
from penstock.api.groups.grouping import Grouping
from penstock.api.handle import name_of
from penstock.api.options import Materialized, Named
from penstock.api.table import KTable
from penstock.api.windowed.build import EmitStrategy, InWindows
from penstock.api.windowed.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
from penstock.base.durations import DurationLike
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError

if TYPE_CHECKING:
    from penstock.serde.windowed import Windowed

__all__ = ["EmitStrategy", "SessionWindowedKStream", "TimeWindowedKStream", "windowed_stream"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
Name = str | Named | None


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
