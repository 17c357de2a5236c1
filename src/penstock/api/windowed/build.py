"""The effect of windows on an aggregation: its store, the serde of its keys, and its operation.

Aggregations without windows, with time windows and with sessions are built in the same way; this module has the
differences, for grouped and for cogrouped streams.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from penstock.api.materialize import key_value_spec, window_spec
from penstock.api.serdes import windowed
from penstock.api.windowed.windows import Windows
from penstock.base.durations import DurationLike, duration_ms
from penstock.errors import TopologyError
from penstock.topology.operations import base as ops

if TYPE_CHECKING:
    from penstock.api.options import Materialized
    from penstock.topology.operations.windows import WindowSpec
    from penstock.topology.stores import StoreSpec
    from penstock.topology.tables import AggregatedTable

__all__ = ["EmitStrategy", "Unwindowed", "InWindows", "Windowing"]

EmitStrategy = Literal["on_window_update", "on_window_close"]


class Windowing(Protocol):
    """The windows of an aggregation, or none."""

    @property
    def burns_count_name(self) -> bool:
        """Whether ``count(Materialized)`` without a store name uses up a generated name, as Kafka's does."""
        ...

    @property
    def takes_expressions(self) -> bool:
        """Whether reducers and aggregators may be Polars expressions."""
        ...

    @property
    def grace_ms(self) -> int | None:
        """The time after the end of a window in which it takes records; None without windows."""
        ...

    @property
    def spec(self) -> WindowSpec | None:
        """The windows as a value of the topology; None without windows."""
        ...

    def store(self, materialized: Materialized, key_serde: Any, value_serde: Any) -> StoreSpec:
        """Return the store of the aggregation."""
        ...

    def keys(self, key_serde: Any) -> Any:
        """Return the serde of the result's keys for the serde of the stream's keys."""
        ...

    def operation(self, aggregation: ops.Aggregation, state: AggregatedTable) -> ops.Operation:
        """Return the operation of the aggregation's processor."""
        ...


@dataclass(frozen=True, slots=True)
class Unwindowed:
    """An aggregation by key alone."""

    burns_count_name = True
    takes_expressions = True
    grace_ms = None
    spec = None

    def store(self, materialized: Materialized, key_serde: Any, value_serde: Any) -> StoreSpec:
        return key_value_spec(materialized, key_serde, value_serde)

    def keys(self, key_serde: Any) -> Any:
        return key_serde

    def operation(self, aggregation: ops.Aggregation, state: AggregatedTable) -> ops.Operation:
        return ops.StreamAggregate(aggregation, state.spec.name, state.send_old)


@dataclass(frozen=True, slots=True)
class InWindows:
    """An aggregation by key and window, with results on every change, or once when a window has closed."""

    windows: Windows
    emit: EmitStrategy = "on_window_update"
    idle_ms: int | None = None

    def emitting(self, emit: EmitStrategy, idle: DurationLike | None) -> InWindows:
        """Return the windows with another emit strategy; see `TimeWindowedKStream.emit_strategy`."""
        if emit not in ("on_window_update", "on_window_close"):
            raise TopologyError(
                f"there is no emit strategy {emit!r}", hint='Use "on_window_update" or "on_window_close".'
            )
        on_close = emit == "on_window_close"
        if on_close and self.spec.kind == "unlimited":
            raise TopologyError("an unlimited window never closes", hint='Use "on_window_update".')
        idle_ms = None if idle is None else duration_ms(idle, "idle")
        if idle_ms is not None and (not on_close or idle_ms <= 0):
            raise TopologyError(
                f"idle is {idle!r} with {emit!r}",
                hint='idle= is a duration of at least 1 ms and goes with "on_window_close".',
            )
        return InWindows(self.windows, emit, idle_ms)

    @property
    def spec(self) -> WindowSpec:
        return self.windows.spec

    @property
    def burns_count_name(self) -> bool:
        return self.spec.kind != "sliding"

    @property
    def takes_expressions(self) -> bool:
        return self.spec.kind in ("time", "unlimited")

    @property
    def grace_ms(self) -> int | None:
        return self.spec.closes_after_ms

    def store(self, materialized: Materialized, key_serde: Any, value_serde: Any) -> StoreSpec:
        spec = window_spec(materialized, key_serde, value_serde, self.spec)
        # As in Kafka, the stores of sessions and sliding windows have no cache when results wait for the close.
        uncached = self._on_close and self.spec.kind in ("session", "sliding")
        return replace(spec, time_ordered=self._on_close, caching=False if uncached else spec.caching)

    def keys(self, key_serde: Any) -> Any:
        spec = self.spec
        return windowed(key_serde, None if spec.kind == "session" else spec.size_ms)

    def operation(self, aggregation: ops.Aggregation, state: AggregatedTable) -> ops.Operation:
        return ops.WindowedAggregate(
            aggregation, self.spec, state.spec.name, self._on_close, state.send_old, self.idle_ms
        )

    @property
    def _on_close(self) -> bool:
        return self.emit == "on_window_close"
