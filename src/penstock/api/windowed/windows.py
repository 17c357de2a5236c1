"""The windows of aggregations, and their effect: the store, the serde of its keys, and the operation.

Aggregations without windows, with time windows and with sessions are built in the same way; this module has the
differences, for grouped and for cogrouped streams.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from penstock.api.materialize import key_value_spec, window_spec
from penstock.api.serdes import windowed
from penstock.base.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.operations import definitions as ops
from penstock.topology.operations.definitions import WindowSpec

if TYPE_CHECKING:
    from penstock.api.options import Materialized
    from penstock.topology.stores import StoreSpec
    from penstock.topology.tables import AggregatedTable

__all__ = [
    "MAX_TIME_MS",
    "EmitStrategy",
    "InWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "UnlimitedWindows",
    "Unwindowed",
    "Windowing",
    "Windows",
]

MAX_TIME_MS = 2**63 - 1


@with_java_names
@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Tumbling or hopping windows: Kafka's ``TimeWindows``.

    >>> TimeWindows.of("1 minute", grace="10 seconds")
    TimeWindows(size_ms=60000, grace_ms=10000, advance_ms=60000)
    >>> TimeWindows.of("1 minute").advance_by("10 seconds").advance_ms
    10000
    """

    size_ms: int
    grace_ms: int
    advance_ms: int

    @classmethod
    def of(cls, size: DurationLike, *, grace: DurationLike = 0, advance: DurationLike | None = None) -> TimeWindows:
        """Make windows of this size.

        Args:
            size: The length of a window.
            grace: The time after the end of a window in which it still takes records.
            advance: The time between the starts of windows; by default the size (tumbling). Less makes them overlap
                (hopping).
        """
        size_ms = duration_ms(size, "size")
        if size_ms <= 0:
            raise TopologyError(f"a window of size {size!r} holds nothing", hint="Give a size of at least 1 ms.")
        windows = cls(size_ms, _grace_ms(grace), size_ms)
        return windows if advance is None else windows.advance_by(advance)

    def advance_by(self, advance: DurationLike) -> TimeWindows:
        """Return hopping windows that start this time apart."""
        advance_ms = duration_ms(advance, "advance")
        if not 0 < advance_ms <= self.size_ms:
            raise TopologyError(
                f"windows of {self.size_ms} ms cannot advance by {advance_ms} ms",
                hint="The advance is more than 0 and at most the size.",
            )
        return replace(self, advance_ms=advance_ms)

    @property
    def spec(self) -> WindowSpec:
        """The windows as a value of the topology."""
        return WindowSpec("time", self.size_ms, self.advance_ms, self.grace_ms)


@with_java_names
@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows around the records themselves: Kafka's ``SlidingWindows``.

    Two records share a window when their timestamps are at most ``time_difference`` apart. Both bounds of a window are
    inclusive, and there is a window for every different set of records.

    >>> SlidingWindows.of("10 seconds", grace="1 minute")
    SlidingWindows(time_difference_ms=10000, grace_ms=60000)
    """

    time_difference_ms: int
    grace_ms: int

    @classmethod
    def of(cls, time_difference: DurationLike, *, grace: DurationLike = 0) -> SlidingWindows:
        """Make windows of this time difference (``ofTimeDifferenceAndGrace``).

        Args:
            time_difference: The largest time between the records of one window.
            grace: The time after the end of a window in which it still takes records.
        """
        difference_ms = duration_ms(time_difference, "time_difference")
        if difference_ms <= 0:
            raise TopologyError(
                f"the time difference of sliding windows is {time_difference!r}", hint="Give one of at least 1 ms."
            )
        return cls(difference_ms, _grace_ms(grace))

    @property
    def size_ms(self) -> int:
        """The largest time difference in milliseconds, which is the size of a window."""
        return self.time_difference_ms

    @property
    def spec(self) -> WindowSpec:
        """The windows as a value of the topology."""
        return WindowSpec("sliding", self.time_difference_ms, 0, self.grace_ms)


@with_java_names
@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Windows of activity, separated by gaps without records: Kafka's ``SessionWindows``.

    >>> SessionWindows.of("5 minutes", grace="1 minute")
    SessionWindows(gap_ms=300000, grace_ms=60000)
    """

    gap_ms: int
    grace_ms: int

    @classmethod
    def of(cls, gap: DurationLike, *, grace: DurationLike = 0) -> SessionWindows:
        """Make sessions that end after this time without a record (``ofInactivityGapAndGrace``).

        Args:
            gap: The largest time between records of one session.
            grace: The time after the gap in which a session still takes late records.
        """
        gap_ms = duration_ms(gap, "gap")
        if gap_ms <= 0:
            raise TopologyError(f"the gap between sessions is {gap!r}", hint="Give a gap of at least 1 ms.")
        return cls(gap_ms, _grace_ms(grace))

    @property
    def spec(self) -> WindowSpec:
        """The windows as a value of the topology."""
        return WindowSpec("session", self.gap_ms, 0, self.grace_ms)


@with_java_names
@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """One window without an end: Kafka's ``UnlimitedWindows``."""

    start_ms: int = 0

    @classmethod
    def of(cls, *, start: TimestampLike = 0) -> UnlimitedWindows:
        """Make a window that starts at ``start``; earlier records are dropped."""
        start_ms = timestamp_ms(start, "start")
        if start_ms < 0:
            raise TopologyError(f"an unlimited window cannot start at {start_ms}", hint="Start at 0 or later.")
        return cls(start_ms)

    @property
    def size_ms(self) -> int:
        """The largest possible size in milliseconds: the window never ends."""
        return MAX_TIME_MS

    @property
    def grace_ms(self) -> int:
        """Always 0: the window never closes."""
        return 0

    @property
    def spec(self) -> WindowSpec:
        """The window as a value of the topology."""
        return WindowSpec("unlimited", MAX_TIME_MS, 0, 0, self.start_ms)


Windows = TimeWindows | SlidingWindows | SessionWindows | UnlimitedWindows


def _grace_ms(grace: DurationLike) -> int:
    grace_ms = duration_ms(grace, "grace")
    if grace_ms < 0:
        raise TopologyError(f"grace is {grace!r}", hint="Give a grace of at least 0.")
    return grace_ms


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
