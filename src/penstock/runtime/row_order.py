"""The place of a row in the depth-first order of Kafka Streams.

A place is a tuple of parts compared from the left: the row's position in the task's merged input, then, for each
operator that multiplied rows, the row's number among them, and for each fork, the number of the child. Rows of two
batches of one task compare by their parts, so operators with several inputs can work in exactly Kafka's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AFTER", "FLUSH", "Place"]

AFTER = 1 << 40  # a part that comes after all that a record itself causes: punctuation
FLUSH = 1 << 41  # a part that comes after punctuation, too: changes that leave the caches at a commit


@dataclass(slots=True)
class Place:
    """The order of rows; nobody changes one.

    ``parts[0]`` is the input position; every part is an int64 array over the rows, or one int for all rows.
    """

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
        """Return the same rows after a fork, on their way to the child of that number."""
        return Place((*self.parts, number), self.length)

    def extend(self, part: NDArray[np.int64] | int) -> Place:
        """Return the same rows with one more part."""
        return Place((*self.parts, part), self.length)

    def flushed(self, store: int) -> Place:
        """Return the same rows leaving a cache: after all else that their records cause, one store after the other."""
        return Place((self.parts[0], FLUSH + store, *self.parts[1:]), self.length)

    @property
    def flush(self) -> int | None:
        """The number of the store whose cache these rows have left; None: they come from their records."""
        part = self.parts[1] if len(self.parts) > 1 else -1
        return part - FLUSH if isinstance(part, int) and part >= FLUSH else None

    def take(self, index: NDArray[np.int64]) -> Place:
        """Return the rows at these positions."""
        return Place(tuple(p if isinstance(p, int) else p[index] for p in self.parts), len(index))

    def position_of(self, other: Place) -> int | None:
        """Return the row, of rows in order, that another one has come from or is; None if it is none of them."""
        wanted = [part if isinstance(part, int) else int(part[0]) for part in other.parts]
        rows = np.arange(*np.searchsorted(self.inputs, (wanted[0], wanted[0] + 1)))
        for part, value in zip(self.parts, wanted, strict=False):
            rows = rows[np.full(len(rows), part == value) if isinstance(part, int) else part[rows] == value]
        return int(rows[0]) if len(rows) else None

    @staticmethod
    def concat(places: Sequence[Place]) -> Place:
        """Return all rows one after the other; shorter places are padded, so a row precedes those that it caused."""
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
        """Return the permutation that sorts the rows into depth-first order (stable)."""
        arrays = [p for p in self.parts if not isinstance(p, int)]
        return np.lexsort(arrays[::-1]) if arrays else np.arange(self.length)
