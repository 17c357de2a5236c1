"""Cutting the inputs of a case into random batches.

The driver hands the records of a batch to the task in the order in which they were piped, so any cut is allowed.
"""

from __future__ import annotations

import random
from typing import Any

__all__ = ["cut"]

Input = dict[str, Any]


def cut(inputs: list[Input], seed: int | None, *, longest: int = 25) -> list[list[int]]:
    """Positions of the inputs, batch by batch; advances of the wall clock stand alone.

    Args:
        inputs: The case's inputs.
        seed: None gives batches of one.
        longest: The most records in one batch.
    """
    if seed is None:
        return [[i] for i in range(len(inputs))]
    dice = random.Random(seed)
    batches: list[list[int]] = []
    wanted = 0
    for i, record in enumerate(inputs):
        last = batches[-1] if batches else []
        if len(last) < wanted and "topic" in record and "topic" in inputs[last[-1]]:
            last.append(i)
        else:
            batches.append([i])
            wanted = dice.randint(1, longest)
    return batches
