"""Errors that functions report without raising: they are counted with the task in whose batch they happen.

A function knows neither its task nor the process that it runs in. So it reports to its thread, and the task takes what
the thread has when its batch ends; from there the counts travel with the task's others.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

__all__ = ["report", "take"]


class _Thread(threading.local):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()


_THREAD = _Thread()


def report(where: str, times: int = 1) -> None:
    """Count an error.

    Args:
        where: The function or column in which it happened.
        times: The number of errors.
    """
    _THREAD.counts[where] += times


def take() -> Mapping[str, int]:
    """Return the errors of this thread since the last call, and forget them.

    >>> report("CHR"), report("CHR", 2)
    (None, None)
    >>> dict(take()), dict(take())
    ({'CHR': 3}, {})
    """
    if not _THREAD.counts:
        return {}
    taken, _THREAD.counts = _THREAD.counts, Counter()
    return taken
