"""The faults of a schedule: drawn by a seed, each at a point that the simulation reaches or not."""

from __future__ import annotations

import random
from dataclasses import dataclass

from penstock.testing.simulation.scheduler import dice_of

__all__ = ["KINDS", "Fault", "draw"]

_WEIGHTS = {
    "crash": 3,
    "power": 2,
    "pause": 1,
    "cut": 1,
    "lost": 1,
    "unanswered": 2,
    "late": 2,
    "driver": 1,
    "clock": 1,
    "full": 1,
    "double": 2,
    "forget": 1,
}
KINDS = tuple(_WEIGHTS)
_MOST = 6
_SOON, _SOON_POINTS = 0.4, 120  # the share of faults that come so soon after the one before
_SECONDS = {"pause": (0.5, 12.0), "cut": (0.1, 8.0), "late": (0.1, 5.0), "clock": (-3.0, 3.0), "double": (0.1, 4.0)}
_DAYS_S = 200_000.0  # more than deletions are kept in compacted topics
_EARLIEST, _LATEST = 20, 1500


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A fault.

    Attributes:
        at: It happens at the first point from this number on that it fits.
        kind: "crash" (of a thread's process), "power" (of a machine), "pause" (of a process), "cut" (between a thread
            and the driver), "lost" (a request), "unanswered" (it takes effect, and its answer is lost), "late" (an
            answer), "driver" (it crashes), "clock" (that of a machine is set), "full" (a disk), "double" (Spark takes
            a process for lost, and starts its thread a second time) or "forget" (a new coordinator of the group has
            lost its newest offsets, and a thread's process ends; only where ``penstock.data.loss=continue``).
        seconds: How long it lasts, or by how much a clock is set.
    """

    at: int
    kind: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} at point {self.at}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


def draw(seed: int) -> list[Fault]:
    """Draw the faults of a seed; some have none, and some come soon after one another."""
    dice = dice_of("faults", seed)
    faults: list[Fault] = []
    for _ in range(dice.randint(0, _MOST)):
        at = int(_EARLIEST * (_LATEST / _EARLIEST) ** dice.random())
        if faults and dice.random() < _SOON:
            at = faults[-1].at + dice.randint(1, _SOON_POINTS)
        faults.append(_one(dice, at))
    return sorted(faults)


def _one(dice: random.Random, at: int) -> Fault:
    kind = dice.choices(KINDS, list(_WEIGHTS.values()))[0]
    if kind == "clock" and dice.random() < 0.5:
        return Fault(at, kind, _DAYS_S)
    seconds = _SECONDS.get(kind)
    return Fault(at, kind, round(dice.uniform(*seconds), 1) if seconds else 0.0)
