"""Matches of the rows of one side with those of the other: same key, near in time, and earlier in the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Candidates", "Pairs", "Probes", "numbered", "pairs_of"]

_LARGEST = 1 << 62


@dataclass(frozen=True)
class Probes:
    """Rows that look for matches in ``lows <= time <= highs``; ``ranks`` are their positions in the batch."""

    codes: NDArray[np.int64]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]
    ranks: NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """Rows that can be found, in order of arrival; those stored by earlier batches have the rank -1."""

    codes: NDArray[np.int64]
    times: NDArray[np.int64]
    ranks: NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Positions of probes and of the rows that each found, in the order of probe, time and arrival."""

    probes: NDArray[np.int64]
    found: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.probes)


def pairs_of(probes: Probes, candidates: Candidates) -> Pairs:
    """Return all matches of rows that stand before the probe."""
    none = np.empty(0, np.int64)
    if not len(probes.codes) or not len(candidates.codes):
        return Pairs(none, none)
    lows, highs, times = probes.lows, probes.highs, candidates.times
    base, last = int(times.min()), int(times.max())
    span = last - base + 1
    if span * (int(max(candidates.codes.max(), probes.codes.max())) + 1) >= _LARGEST:  # count distinct times instead
        distinct = np.unique(times)
        times = np.searchsorted(distinct, times)
        lows, highs = np.searchsorted(distinct, lows), np.searchsorted(distinct, highs, "right") - 1
        base, span = 0, len(distinct)
    line, order = _sorted(candidates.codes * span + (times - base))  # one number line, key after key
    fronts = probes.codes * span
    first = _search(line, fronts + np.clip(lows - base, 0, span))
    counts = np.maximum(_search(line, fronts + np.clip(highs - base + 1, 0, span)) - first, 0)
    index = np.repeat(np.arange(len(counts)), counts)
    matched = order[first[index] + numbered(counts)]
    before = candidates.ranks[matched] < probes.ranks[index]
    return Pairs(index[before], matched[before])


def _sorted(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers (none negative) in order, and the place of each; equal ones keep their order."""
    bits = len(numbers).bit_length()
    if int(numbers.max()) >= _LARGEST >> bits:
        order = np.argsort(numbers, kind="stable")
        return numbers[order], order
    packed = (numbers << bits) | np.arange(len(numbers))  # sorting numbers is several times faster than sorting places
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)


def _search(line: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many numbers of the line are smaller than each; searched in order, for the processor's caches."""
    if not len(numbers):
        return numbers
    ascending, order = _sorted(numbers)
    result = np.empty(len(numbers), np.int64)
    result[order] = np.searchsorted(line, ascending)
    return result


def numbered(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, 2, ... as many as each count says."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
