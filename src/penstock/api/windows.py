"""Windows as users write them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.errors import TopologyError
from penstock.topology.windows import WindowSpec

__all__ = ["MAX_TIME_MS", "TimeWindows", "UnlimitedWindows"]

MAX_TIME_MS = 2**63 - 1


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
        """Windows of this size.

        Args:
            size: How long a window is.
            grace: How long after its end a window still takes records.
            advance: How far apart windows start; by default the size (tumbling), less makes them overlap (hopping).
        """
        size_ms, grace_ms = duration_ms(size, "size"), duration_ms(grace, "grace")
        if size_ms <= 0:
            raise TopologyError(f"a window of size {size!r} holds nothing", hint="Give a size of at least 1 ms.")
        if grace_ms < 0:
            raise TopologyError(f"grace is {grace!r}", hint="Give a grace of at least 0.")
        windows = cls(size_ms, grace_ms, size_ms)
        return windows if advance is None else windows.advance_by(advance)

    def advance_by(self, advance: DurationLike) -> TimeWindows:
        """Hopping windows that start this far apart."""
        advance_ms = duration_ms(advance, "advance")
        if not 0 < advance_ms <= self.size_ms:
            raise TopologyError(
                f"windows of {self.size_ms} ms cannot advance by {advance_ms} ms",
                hint="The advance is more than 0 and at most the size.",
            )
        return replace(self, advance_ms=advance_ms)

    @property
    def spec(self) -> WindowSpec:
        return WindowSpec("time", self.size_ms, self.advance_ms, self.grace_ms)


@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """One window without an end: Kafka's ``UnlimitedWindows``."""

    start_ms: int = 0

    @classmethod
    def of(cls, *, start: TimestampLike = 0) -> UnlimitedWindows:
        """A window from ``start`` on; earlier records are left out."""
        start_ms = timestamp_ms(start, "start")
        if start_ms < 0:
            raise TopologyError(f"an unlimited window cannot start at {start_ms}", hint="Start at 0 or later.")
        return cls(start_ms)

    @property
    def size_ms(self) -> int:
        return MAX_TIME_MS

    @property
    def grace_ms(self) -> int:
        return 0

    @property
    def spec(self) -> WindowSpec:
        return WindowSpec("unlimited", MAX_TIME_MS, 0, 0, self.start_ms)
