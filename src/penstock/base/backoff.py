"""The pauses between attempts: each longer than the one before, up to a longest one."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.randomness import RANDOM

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses between the attempts of something that fails and may pass: Kafka's ``ExponentialBackoff``.

    Attributes:
        first_s: The pause after the first attempt.
        longest_s: The longest pause.
        factor: By which each pause is longer than the one before.
        jitter: The share of a pause, from 0 to 1, by which it is shorter at random, so that many who have failed
            together do not come together again.

    Example:
        >>> backoff = Backoff(0.1, 0.5)
        >>> [backoff.pause_s(failures) for failures in range(1, 5)]
        [0.1, 0.2, 0.4, 0.5]
    """

    first_s: float
    longest_s: float
    factor: float = 2.0
    jitter: float = 0.0

    def pause_s(self, failures: int) -> float:
        """Return the pause after this number of failures in a row, at least 1."""
        try:
            pause = min(self.first_s * self.factor ** (failures - 1), self.longest_s)
        except OverflowError:
            pause = self.longest_s
        return pause * (1 - self.jitter * RANDOM.random()) if self.jitter else pause
