"""Where a row stands in the depth-first order of Kafka Streams.

A place is a tuple of parts compared from the left: the row's position in the task's merged input, then, for each
operator that multiplied rows, which of its rows it is, and for each fork, which child it went to. Rows of two batches
of one task compare by their parts, so operators with several inputs can work in exactly Kafka's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AFTER", "Place"]

AFTER = 1 << 40  # a part that comes after all that a record itself causes: punctuation


@dataclass(frozen=True, slots=True)
class Place:
    """``parts[0]`` is the input position; every part is an int64 array over the rows, or one int for all rows."""

    parts: tuple[NDArray[np.int64] | int, ...]
    length: int

    @classmethod
    def of_inputs(cls, positions: NDArray[np.int64]) -> Place:
        return cls((positions,), len(positions))

    @property
    def inputs(self) -> NDArray[np.int64]:
        """The input position of each row."""
        first = self.parts[0]
        return np.full(self.length, first, np.int64) if isinstance(first, int) else first

    def child(self, number: int) -> Place:
        """The same rows after a fork, on their way to the child of that number."""
        return Place((*self.parts, number), self.length)

    def extend(self, part: NDArray[np.int64] | int) -> Place:
        """The same rows with one more part."""
        return Place((*self.parts, part), self.length)

    def take(self, index: NDArray[np.int64]) -> Place:
        """The rows at these positions."""
        return Place(tuple(p if isinstance(p, int) else p[index] for p in self.parts), len(index))

    @staticmethod
    def concat(places: Sequence[Place]) -> Place:
        """All rows one after the other; shorter places are padded, so that a row comes before what it caused."""
        depth = max(len(p.parts) for p in places)
        parts = []
        for i in range(depth):
            column = [p.parts[i] if i < len(p.parts) else -1 for p in places]
            parts.append(
                np.concatenate(
                    [
                        np.full(p.length, part, np.int64) if isinstance(part, int) else part
                        for p, part in zip(places, column, strict=True)
                    ]
                )
            )
        return Place(tuple(parts), sum(p.length for p in places))

    def order(self) -> NDArray[np.int64]:
        """The permutation that sorts the rows into depth-first order (stable)."""
        arrays = [p for p in self.parts if not isinstance(p, int)]
        return np.lexsort(arrays[::-1]) if arrays else np.arange(self.length)
