"""Samples of the recorded cases, for engines on which all of them would take long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["sample"]

Case = dict[str, Any]


def sample(cases: Sequence[Case], most: int) -> list[Case]:
    """Cases of every family, and in each of as many kinds as possible; always the same ones.

    A kind is a file's name without its seed.
    """
    by_kind: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        kind = case["file"].rpartition("__")[0] or case["file"]
        by_kind.setdefault(case["family"], {}).setdefault(kind, []).append(case)
    turns = [_in_turn(kinds) for kinds in by_kind.values()]
    chosen: list[Case] = []
    while turns and len(chosen) < most:
        for family in list(turns):
            case = next(family, None)
            if case is None:
                turns.remove(family)
            elif len(chosen) < most:
                chosen.append(case)
    return chosen


def _in_turn(kinds: dict[str, list[Case]]) -> Iterator[Case]:
    """The first case of each kind, then the second of each."""
    for number in range(max(map(len, kinds.values()))):
        for kind in sorted(kinds):
            if number < len(kinds[kind]):
                yield kinds[kind][number]
