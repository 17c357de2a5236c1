"""KGroupedStream: records grouped by key, ready to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.api.groups.agg import BuiltInAggregator
from penstock.api.groups.aggregations import Fold, aggregate_of
from penstock.api.groups.cogrouping import cogroup
from penstock.api.groups.grouping import Grouping
from penstock.api.handle import Fluent, name_of
from penstock.api.options import Materialized, Named
from penstock.api.serdes import resolve
from penstock.api.table import KTable
from penstock.api.windowed.build import Unwindowed, Windowing
from penstock.base.java_names import with_java_names
from penstock.topology.operations import base as ops
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.groups.cogrouped import CogroupedKStream
    from penstock.api.groups.windowed import SessionWindowedKStream, TimeWindowedKStream
    from penstock.api.windowed.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows

__all__ = ["FoldingAggregations", "KGroupedStream", "StreamAggregations"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")  # the keys of the result: plain or windowed
Name = str | Named | None


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
        from penstock.api.groups.cogrouped import CogroupedKStream

        return CogroupedKStream(cogroup(self._handle, aggregator))

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows | UnlimitedWindows) -> TimeWindowedKStream[K, V]: ...

    def windowed_by(self, windows: Windows) -> SessionWindowedKStream[K, V] | TimeWindowedKStream[K, V]:
        """Group by window as well as by key (``windowedBy``)."""
        from penstock.api.groups.windowed import windowed_stream

        return windowed_stream(self._handle, windows)
