"""What windows make of an aggregation: its store, the serde of its keys, and its operation.

Without windows, with time windows and with sessions an aggregation is built in the same way; where these differ is
told here, once for grouped and for cogrouped streams.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from penstock.api.materialize import key_value_spec, window_spec
from penstock.api.serdes import windowed
from penstock.api.windows import Windows
from penstock.durations import DurationLike, duration_ms
from penstock.errors import TopologyError
from penstock.topology import operations as ops

if TYPE_CHECKING:
    from penstock.api.options import Materialized
    from penstock.topology.stores import StoreSpec
    from penstock.topology.tables import AggregatedTable

__all__ = ["EmitStrategy", "Unwindowed", "InWindows", "Windowing"]

EmitStrategy = Literal["on_window_update", "on_window_close"]


class Windowing(Protocol):
    """How an aggregation is windowed, if at all."""

    @property
    def burns_count_name(self) -> bool:
        """Whether ``count(Materialized)`` without a store name takes a name that nothing uses, as Kafka's does."""
        ...

    @property
    def takes_expressions(self) -> bool:
        """Whether reducers and aggregators may be Polars expressions."""
        ...

    @property
    def grace_ms(self) -> int | None:
        """How long after its end a window takes records; None without windows."""
        ...

    def store(self, materialized: Materialized, key_serde: Any, value_serde: Any) -> StoreSpec:
        """The aggregation's store."""
        ...

    def keys(self, key_serde: Any) -> Any:
        """The serde of the result's keys, given that of the stream's."""
        ...

    def operation(self, aggregation: ops.Aggregation, state: AggregatedTable) -> ops.Operation:
        """What the aggregation's processor does."""
        ...


@dataclass(frozen=True, slots=True)
class Unwindowed:
    """By key alone."""

    burns_count_name = True
    takes_expressions = True
    grace_ms = None

    def store(self, materialized: Materialized, key_serde: Any, value_serde: Any) -> StoreSpec:
        return key_value_spec(materialized, key_serde, value_serde)

    def keys(self, key_serde: Any) -> Any:
        return key_serde

    def operation(self, aggregation: ops.Aggregation, state: AggregatedTable) -> ops.Operation:
        return ops.StreamAggregate(aggregation, state.spec.name, state.send_old)


@dataclass(frozen=True, slots=True)
class InWindows:
    """By key and window, with results sent on every change, or once when a window has closed."""

    windows: Windows
    emit: EmitStrategy = "on_window_update"
    idle_ms: int | None = None

    def emitting(self, emit: EmitStrategy, idle: DurationLike | None) -> InWindows:
        """The same with another emit strategy; see `TimeWindowedKStream.emit_strategy`."""
        if emit not in {"on_window_update", "on_window_close"}:
            raise TopologyError(
                f"there is no emit strategy {emit!r}", hint='Use "on_window_update" or "on_window_close".'
            )
        on_close = emit == "on_window_close"
        if on_close and self.windows.spec.kind == "unlimited":
            raise TopologyError("an unlimited window never closes", hint='Use "on_window_update".')
        idle_ms = None if idle is None else duration_ms(idle, "idle")
        if idle_ms is not None and (not on_close or idle_ms <= 0):
            raise TopologyError(
                f"idle is {idle!r} with {emit!r}",
                hint='idle= is a duration of at least 1 ms and goes with "on_window_close".',
            )
        return InWindows(self.windows, emit, idle_ms)

    @property
    def burns_count_name(self) -> bool:
        return self.windows.spec.kind != "sliding"

    @property
    def takes_expressions(self) -> bool:
        return self.windows.spec.kind in ("time", "unlimited")

    @property
    def grace_ms(self) -> int | None:
        return self.windows.spec.closes_after_ms

    def store(self, materialized: Materialized, key_serde: Any, value_serde: Any) -> StoreSpec:
        spec = window_spec(materialized, key_serde, value_serde, self.windows.spec)
        # As in Kafka, the stores of sessions and sliding windows have no cache when results wait for the close.
        uncached = self._on_close and self.windows.spec.kind in ("session", "sliding")
        return replace(spec, time_ordered=self._on_close, caching=False if uncached else spec.caching)

    def keys(self, key_serde: Any) -> Any:
        spec = self.windows.spec
        return windowed(key_serde, None if spec.kind == "session" else spec.size_ms)

    def operation(self, aggregation: ops.Aggregation, state: AggregatedTable) -> ops.Operation:
        return ops.WindowedAggregate(
            aggregation, self.windows.spec, state.spec.name, self._on_close, state.send_old, self.idle_ms
        )

    @property
    def _on_close(self) -> bool:
        return self.emit == "on_window_close"
