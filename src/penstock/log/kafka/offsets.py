"""How far topics go, and when their records are from, without reading them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from penstock.log.kafka.topics import Topics

__all__ = ["stretches", "wait_for_data"]

_PIECES = 16
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.02
_LEAST_TIME = 0


def wait_for_data(topics: Topics, known: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
    """Waits until these topics no longer end at ``known``, at most so long; gives where they end then."""
    deadline = time.monotonic() + timeout_s
    names = sorted({place.topic for place in known})
    pause = _FIRST_PAUSE_S
    while True:
        ends = topics.ends(names)
        left = deadline - time.monotonic()
        if ends != known or left <= 0:
            return ends
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def stretches(topics: Topics, place: TopicPartition, start: int, end: int, most: int) -> list[tuple[int, int, int]]:
    """Stretches of records from ``start`` on until they hold ``most``: (next offset, smallest, largest time).

    The broker has an index by time: it tells the first offset from a time on. So the span of time is halved until each
    stretch is a small part of what is wanted. Times are bounds of the latest record so far, not of each record.
    """
    last = topics.newest_time(place)
    if last is None or start >= end:
        return []
    small = max(1, most // _PIECES)
    found: list[tuple[int, int, int]] = []
    # Each entry: records of [first, following) are the first of times in [low, high]; the earliest stretch on top.
    waiting = [(start, end, _LEAST_TIME, last)]
    while waiting and (not found or found[-1][0] < start + most):
        first, following, low, high = waiting.pop()
        if following - first <= small or low >= high:
            found.append((following, low, high))
            continue
        middle = (low + high) // 2
        cut = topics.for_time(place, middle + 1)
        at = following if cut is None else min(max(cut.offset, first), following)
        if at < following:
            waiting.append((at, following, middle + 1, high))
        if at > first:
            waiting.append((first, at, low, middle))
    return found
