"""Where a generator's choices come from: Hypothesis, which shrinks them, or a seed, which is fast."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

__all__ = ["Dice", "drawn", "seeded"]

T = TypeVar("T")


class Dice:
    """Choices of a generator. The first option of each is the simplest: Hypothesis shrinks towards it."""

    def __init__(self, number: Callable[[int], int]) -> None:
        self._number = number

    def number(self, below: int) -> int:
        """A number from 0 on, smaller than ``below``."""
        return self._number(below) if below > 1 else 0

    def maybe(self, share: float) -> bool:
        """True in this share of all cases."""
        return self.number(100) >= 100 - round(share * 100)

    def one(self, *options: T) -> T:
        return options[self.number(len(options))]

    def of(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]


@lru_cache(maxsize=256)
def _integers(below: int) -> st.SearchStrategy[int]:
    return st.integers(0, below - 1)


def drawn(draw: Callable[[Any], Any]) -> Dice:
    """Choices of Hypothesis."""
    return Dice(lambda below: draw(_integers(below)))


def seeded(seed: int) -> Dice:
    """Choices of a seed."""
    return Dice(random.Random(seed).randrange)
