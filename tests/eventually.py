"""Waiting in tests for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["eventually"]

T = TypeVar("T")
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.3


def eventually(
    condition: Callable[[], T],
    within_s: float = 120.0,
    *,
    passing: tuple[type[Exception], ...] = (),
    facts: Callable[[], object] = lambda: None,
) -> T:
    """Call a condition until it returns something true, and return that.

    Args:
        condition: The condition.
        within_s: The seconds after which it is too late.
        passing: Exceptions that count as "not yet".
        facts: Called when it is too late, for the message.

    Raises:
        AssertionError: It was too late.
    """
    deadline = time.monotonic() + within_s
    while True:
        looks = time.monotonic()
        is_late = looks > deadline
        try:
            if found := condition():
                return found
        except passing:
            if is_late:
                raise
        assert not is_late, f"not within {within_s} s: {facts()}"
        # What costs much, as reading a topic, is asked less often: the processors are for what is waited for.
        time.sleep(min(max(_PAUSE_S, 3 * (time.monotonic() - looks)), _LONGEST_PAUSE_S))
