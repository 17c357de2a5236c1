"""Calls of coroutine functions: an operation that Kafka Streams does not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.base.argument_checks import check_given, check_whole
from penstock.base.backoff import Backoff
from penstock.base.durations import DurationLike, duration_ms
from penstock.errors import TopologyError
from penstock.topology.operations.base import Operation
from penstock.topology.operations.functions import Function

__all__ = ["MapAsync", "Retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """The number of retries of a call that raised or took too long, and the pauses before them.

    >>> list(Retry(4, backoff="1 s", max_backoff="5 s").pauses_ms())
    [1000, 2000, 4000, 5000]

    Args:
        times: Attempts after the first one.
        backoff: The pause before the first of them.
        factor: By which each pause is longer than the one before.
        max_backoff: The longest pause.
        on: The exceptions after which to try again; all others count as final.

    Raises:
        TopologyError: A number is out of range.
    """

    times: int = 3
    backoff: DurationLike = 100
    factor: float = 2.0
    max_backoff: DurationLike = 30_000
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        for name in ("backoff", "max_backoff"):
            object.__setattr__(self, name, duration_ms(getattr(self, name), name))
        check_whole(self.times, "Retry: times", 0)
        check_given(self.factor, (int, float), "Retry: factor", "a number")
        check_given(self.on, tuple, "Retry: on", "a tuple of exception classes", "For example (TimeoutError,).")
        if self.factor < 1 or duration_ms(self.backoff) < 0:
            raise TopologyError(
                f"{self!r} cannot be done", hint="Give times and backoff of at least 0, factor 1 or more."
            )
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in self.on):
            raise TopologyError(f"on= is {self.on!r}", hint="Give a tuple of exception classes.")

    def pauses_ms(self) -> Iterator[int]:
        """Yield the pauses, one for each further attempt."""
        backoff = Backoff(duration_ms(self.backoff) / 1000, duration_ms(self.max_backoff) / 1000, float(self.factor))
        for failures in range(1, self.times + 1):
            yield round(1000 * backoff.pause_s(failures))


@dataclass(frozen=True, slots=True)
class MapAsync(Operation):
    """Awaits a coroutine for each record; its result is the new value, or with ``pairs`` a (key, value) tuple."""

    fn: Function
    pairs: bool
    limit: int
    ordered: bool
    retry: Retry | None
    timeout_ms: int | None
