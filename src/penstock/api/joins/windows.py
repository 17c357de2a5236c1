"""The window of a join of two streams: the time between records that match."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.base.durations import DurationLike, duration_ms
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.building.joins import JoinWindowSpec

__all__ = ["JoinWindows"]

_DAY_MS = 86_400_000


@with_java_names
@dataclass(frozen=True, slots=True)
class JoinWindows:
    """The window of a join of two streams, in event time: Kafka's ``JoinWindows``.

    A right record matches a left one when ``left - before_ms <= right <= left + after_ms``; both bounds are inclusive.

    >>> JoinWindows.of("5 seconds", grace="1 second")
    JoinWindows(before_ms=5000, after_ms=5000, grace_ms=1000, waits=True)
    >>> JoinWindows.of("5 seconds").before(0).after("1 minute")
    JoinWindows(before_ms=0, after_ms=60000, grace_ms=0, waits=True)

    Args:
        before_ms: The most that the right record may be earlier than the left one; negative: it must be later.
        after_ms: The most that it may be later; negative: it must be earlier.
        grace_ms: The time after the end of its window in which a record still matches late ones.
        waits: Whether unmatched records of left and outer joins wait for the end of their window plus grace.
    """

    before_ms: int
    after_ms: int
    grace_ms: int
    waits: bool = True

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise TopologyError(
                f"a join window from {-self.before_ms} ms to {self.after_ms} ms ends before it starts",
                hint="before plus after must be at least 0.",
            )
        if self.grace_ms < 0:
            raise TopologyError(f"grace is {self.grace_ms} ms", hint="Give a grace of at least 0.")

    @classmethod
    def of(cls, difference: DurationLike, *, grace: DurationLike = 0) -> JoinWindows:
        """Make a window of this difference in both directions.

        Kafka's ``ofTimeDifferenceAndGrace`` and ``ofTimeDifferenceWithNoGrace``.
        """
        difference_ms = duration_ms(difference, "difference")
        return cls(difference_ms, difference_ms, duration_ms(grace, "grace"))

    @classmethod
    def legacy(cls, difference: DurationLike, *, grace: DurationLike | None = None) -> JoinWindows:
        """Make the window of Kafka's deprecated ``JoinWindows.of(difference)``, with ``.grace(grace)`` if set.

        Without ``grace`` both sides are stored for a day. Left and outer joins send unmatched records at once, and so
        may send a record first unmatched and later with its match.

        >>> JoinWindows.legacy("1 hour").grace_ms
        79200000
        """
        difference_ms = duration_ms(difference, "difference")
        kept_ms = max(_DAY_MS - 2 * difference_ms, 0) if grace is None else duration_ms(grace, "grace")
        return cls(difference_ms, difference_ms, kept_ms, waits=False)

    def before(self, difference: DurationLike) -> JoinWindows:
        """Return the window with another limit for earlier right records."""
        return replace(self, before_ms=duration_ms(difference, "before"))

    def after(self, difference: DurationLike) -> JoinWindows:
        """Return the window with another limit for later right records."""
        return replace(self, after_ms=duration_ms(difference, "after"))

    @property
    def spec(self) -> JoinWindowSpec:
        """The window as a value of the topology."""
        return JoinWindowSpec(self.before_ms, self.after_ms, self.grace_ms, self.waits)
