"""How far apart in time the records of two streams may be to join."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.durations import DurationLike, duration_ms
from penstock.errors import TopologyError
from penstock.topology.stream_joins import JoinWindowSpec

__all__ = ["JoinWindows"]

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """How far apart in event time two records may be to match: Kafka's ``JoinWindows``.

    A right record matches a left one when ``left - before_ms <= right <= left + after_ms``; both ends belong to it.

    >>> JoinWindows.of("5 seconds", grace="1 second")
    JoinWindows(before_ms=5000, after_ms=5000, grace_ms=1000, waits=True)
    >>> JoinWindows.of("5 seconds").before(0).after("1 minute")
    JoinWindows(before_ms=0, after_ms=60000, grace_ms=0, waits=True)

    Args:
        before_ms: How much earlier than the left record the right one may be; negative: it must be later.
        after_ms: How much later it may be; negative: it must be earlier.
        grace_ms: How long after the end of its window a record still waits for late ones.
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
        """Records at most this far apart, either way.

        Kafka's ``ofTimeDifferenceAndGrace`` and ``ofTimeDifferenceWithNoGrace``.
        """
        difference_ms = duration_ms(difference, "difference")
        return cls(difference_ms, difference_ms, duration_ms(grace, "grace"))

    @classmethod
    def legacy(cls, difference: DurationLike, *, grace: DurationLike | None = None) -> JoinWindows:
        """Kafka's deprecated ``JoinWindows.of(difference)``, with ``.grace(grace)`` if that is given.

        Without ``grace`` both sides are kept for a day. Left and outer joins give unmatched records at once, and so
        may give a record both unmatched and, later, with its match.

        >>> JoinWindows.legacy("1 hour").grace_ms
        79200000
        """
        difference_ms = duration_ms(difference, "difference")
        kept_ms = max(_DAY_MS - 2 * difference_ms, 0) if grace is None else duration_ms(grace, "grace")
        return cls(difference_ms, difference_ms, kept_ms, waits=False)

    def before(self, difference: DurationLike) -> JoinWindows:
        """With another bound on how much earlier the right record may be."""
        return replace(self, before_ms=duration_ms(difference, "before"))

    def after(self, difference: DurationLike) -> JoinWindows:
        """With another bound on how much later the right record may be."""
        return replace(self, after_ms=duration_ms(difference, "after"))

    @property
    def spec(self) -> JoinWindowSpec:
        return JoinWindowSpec(self.before_ms, self.after_ms, self.grace_ms, self.waits)
