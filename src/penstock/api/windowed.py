"""TimeWindowedKStream: records grouped by key and window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Literal, TypeVar

from penstock.api.grouped import Grouping, aggregate_of, count_name
from penstock.api.handle import name_of
from penstock.api.materialize import named, window_spec
from penstock.api.options import Materialized, Named
from penstock.api.serdes import UNKNOWN, resolve, windowed
from penstock.api.table import KTable
from penstock.api.windows import TimeWindows, UnlimitedWindows
from penstock.errors import TopologyError
from penstock.topology import operations as ops
from penstock.topology.functions import Function

__all__ = ["EmitStrategy", "TimeWindowedKStream"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
Name = str | Named | None
EmitStrategy = Literal["on_window_update", "on_window_close"]


class TimeWindowedKStream(Generic[K, V]):
    """A grouped and windowed stream: Kafka's ``TimeWindowedKStream``. Late records are dropped and counted."""

    def __init__(
        self, grouping: Grouping, windows: TimeWindows | UnlimitedWindows, emit: EmitStrategy = "on_window_update"
    ) -> None:
        self._grouping = grouping
        self._windows = windows
        self._emit = emit

    def emit_strategy(self, emit: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """When results are sent (``emitStrategy``): "on_window_update", or "on_window_close" for final ones only."""
        if emit not in {"on_window_update", "on_window_close"}:
            raise TopologyError(
                f"there is no emit strategy {emit!r}", hint='Use "on_window_update" or "on_window_close".'
            )
        if emit == "on_window_close" and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError("an unlimited window never closes", hint='Use "on_window_update".')
        return TimeWindowedKStream(self._grouping, self._windows, emit)

    def count(self, materialized: Materialized | str | None = None, *, name: Name = None) -> KTable[Any, int]:
        """Counts the records of each key and window.

        >>> from penstock import TimeWindows
        >>> from penstock.testing import try_out
        >>> windowed = lambda s: s.group_by_key().windowed_by(TimeWindows.of("1 minute"))
        >>> counts = try_out(lambda s: windowed(s).count(), [("a", 1, 0), ("a", 1, 61_000)])
        >>> [(key.key, key.window.start, count) for key, count in counts]
        [('a', 0, 1), ('a', 60000, 1)]
        """
        given = Materialized.of(materialized)
        count_name(self._grouping.handle, given)
        return self._aggregate("KSTREAM-AGGREGATE-", ops.Aggregation("count"), given, name, resolve("long"))

    def reduce(
        self, reducer: Callable[[V, V], V], materialized: Materialized | str | None = None, *, name: Name = None
    ) -> KTable[Any, V]:
        """Combines the values of each key and window: ``reducer(aggregate, value)``; the first value starts."""
        fn = Function.wrap(reducer, verb="reduce", allowed=(2,))
        value_serde = self._grouping.handle.value_serde
        given = Materialized.of(materialized)
        return self._aggregate("KSTREAM-REDUCE-", ops.Aggregation("reduce", fn), given, name, value_serde)

    def aggregate(
        self,
        initializer: Callable[[], A] | A,
        aggregator: Callable[[K, V, A], A] | Any = None,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[Any, A]:
        """Folds the values of each key and window; arguments as for the plain ``aggregate``."""
        aggregation = aggregate_of(initializer, aggregator)
        return self._aggregate("KSTREAM-AGGREGATE-", aggregation, Materialized.of(materialized), name, UNKNOWN)

    def _aggregate(
        self,
        prefix: str,
        aggregation: ops.Aggregation,
        given: Materialized | None,
        name: Name,
        value_serde: Any,
    ) -> KTable[Any, Any]:
        handle, windows = self._grouping.handle, self._windows
        store = named(given, handle.builder, prefix)
        node = handle.builder.names.processor(prefix, name_of(name))
        if store.history is not None:
            raise TopologyError(
                f"store {store.name!r} is of windows, which have no versions",
                hint="Use retention= in place of history=.",
            )
        key = store.key_serde if store.key_serde is not None else handle.key_serde
        value = store.value_serde if store.value_serde is not None else value_serde
        on_close = self._emit == "on_window_close"
        return self._grouping.aggregate(
            node,
            replace(
                window_spec(store, key, value, size_ms=windows.size_ms, grace_ms=windows.grace_ms),
                time_ordered=on_close,
            ),
            lambda state: ops.WindowedAggregate(aggregation, windows.spec, state.spec.name, on_close, state.send_old),
            windowed(key, windows.size_ms),
            value,
            queryable=given is not None and given.name is not None,
            grace_ms=windows.grace_ms,
        )
