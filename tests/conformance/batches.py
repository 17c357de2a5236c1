"""Cutting the inputs of a case into random batches.

The driver hands the records of a batch to the task in the order in which they were piped, so any cut is allowed.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

__all__ = ["cut", "cut_in_order", "is_split_invariant"]

Input = dict[str, Any]


# Their processor asks in the midst of a batch for what has been committed, and a batch is committed as a whole.
_SEES_COMMITS = ("isolation-in-memory", "isolation-kv-config-only", "isolation-kv-transactional")


def is_split_invariant(case: dict[str, Any]) -> bool:
    """Whether a case has to give the same, however its inputs are cut into batches."""
    return not case["file"].partition("__")[2].startswith(_SEES_COMMITS)


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


def cut_in_order(
    inputs: list[Input],
    seed: int | None = None,
    *,
    longest: int = 12,
    everywhere: Collection[str] = (),
    keys_once: bool = False,
) -> list[list[Input]]:
    """The records in batches that give the very same order when their topics are merged by time, as a task merges them.

    Args:
        inputs: The case's records.
        seed: None makes the batches as long as they can be, else they are of random length.
        longest: The most records in one batch.
        everywhere: The topics of global stores: a batch sees all of their records that were there before it.
        keys_once: Whether a key may stand in one topic of a batch only once.
    """
    dice = random.Random(seed)
    batches: list[list[Input]] = []
    wanted = 0
    for record in inputs:
        last = batches[-1] if batches else []
        if record["topic"] in everywhere:
            fits = all(each["topic"] in everywhere for each in last)
        else:
            fits = _stays_in_order([*(each for each in last if each["topic"] not in everywhere), record])
        if keys_once:
            fits = fits and not any((each["topic"], each["key"]) == (record["topic"], record["key"]) for each in last)
        if last and len(last) < wanted and fits:
            last.append(record)
        else:
            batches.append([record])
            wanted = longest if seed is None else dice.randint(1, longest)
    return batches


def _stays_in_order(records: list[Input]) -> bool:
    newest: dict[str, int] = {}
    ranks = []
    for record in records:
        topic = record["topic"]
        newest[topic] = max(newest.get(topic, -1), record["timestamp"])
        ranks.append((newest[topic], topic))
    return ranks == sorted(ranks)
