"""TimeWindowedKStream and SessionWindowedKStream: records grouped by key and window."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.api.agg import BuiltInAggregator
from penstock.api.grouped import FoldingAggregations, Grouping, StreamAggregations, aggregate_of
from penstock.api.options import Materialized, Named
from penstock.api.table import KTable
from penstock.api.windowing import EmitStrategy, InWindows
from penstock.api.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
from penstock.durations import DurationLike
from penstock.errors import TopologyError

if TYPE_CHECKING:
    from penstock.serde.windowed import Windowed

__all__ = ["EmitStrategy", "SessionWindowedKStream", "TimeWindowedKStream", "windowed_stream"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
Name = str | Named | None


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
        """When results are sent (``emitStrategy``): "on_window_update", or "on_window_close" for final ones only.

        Args:
            emit: The strategy.
            idle: Not in Kafka. When no record came for this long by the wall clock, all windows close and their results
                are sent; records that come later for one of them are late. Without it the last windows of a stream
                wait for a later record.
        """
        return TimeWindowedKStream(self._grouping, self._windowed.emitting(emit, idle))


class SessionWindowedKStream(StreamAggregations[K, V, "Windowed[K]"]):
    """A stream grouped by key and session: Kafka's ``SessionWindowedKStream``.

    A session starts with its first record and ends with its last; both times belong to it. A record that comes between
    two sessions, near to both, makes them one: their results are deleted and that of the whole is sent.

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

    def aggregate(
        self,
        initializer: Callable[[], A] | A,
        aggregator: Callable[[K, V, A], A] | Any = None,
        merger: Callable[[K, A, A], A] | None = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Windowed[K], A]:
        """Folds the values of each session: ``aggregator(key, value, aggregate)``.

        It starts from a constant or ``initializer()``. ``merger(key, left, right)`` makes one aggregate of those of two
        sessions, ``left`` the earlier one; it is also called with what the initializer gives. A built-in aggregator
        merges by itself: ``aggregate(agg.sum("amount"))``.
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
        return self._fold_to_result(aggregation, materialized, name)

    def emit_strategy(self, emit: EmitStrategy, *, idle: DurationLike | None = None) -> SessionWindowedKStream[K, V]:
        """When results are sent; see `TimeWindowedKStream.emit_strategy`.

        A session closes when gap and grace have passed since its end.
        """
        return SessionWindowedKStream(self._grouping, self._windowed.emitting(emit, idle))


def windowed_stream(
    grouping: Grouping, windows: Windows
) -> TimeWindowedKStream[Any, Any] | SessionWindowedKStream[Any, Any]:
    """`KGroupedStream.windowed_by`."""
    if isinstance(windows, SessionWindows):
        return SessionWindowedKStream(grouping, InWindows(windows))
    if isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
        return TimeWindowedKStream(grouping, InWindows(windows))
    raise TopologyError(f"windowed_by() takes windows, not {windows!r}", hint='For example TimeWindows.of("1 minute").')
