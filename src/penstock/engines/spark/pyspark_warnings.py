"""Suppression of PySpark's warnings about things that users of Penstock cannot change."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["quiet_pyspark"]

_CATEGORIES = (FutureWarning, ResourceWarning)  # about every new pandas; about PySpark's own sockets
_lock = threading.Lock()
_inside = 0
_added: list[Any] = [("ignore", None, category, None, 0) for category in _CATEGORIES]


@contextmanager
def quiet_pyspark() -> Iterator[None]:
    """Suppress PySpark's warnings about pandas, which is not used here, and about sockets, which it closes late.

    All threads share the filters of warnings. ``warnings.catch_warnings`` restores a whole list: of two applications
    that start at once, the first to be ready would remove the filter of the other.
    """
    global _inside  # noqa: PLW0603 - the number of running blocks in the whole process
    with _lock:
        _inside += 1
        filters: Any = warnings.filters
        filters[:0] = [mine for mine in _added if not _contains(mine, filters)]  # another block's may be lost
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                filters = warnings.filters  # other code's catch_warnings may have restored its own list
                filters[:] = [entry for entry in filters if not _contains(entry, _added)]


def _contains(entry: object, entries: list[Any]) -> bool:
    """Return whether the entry itself is in the list, not only an equal one that others have made."""
    return any(entry is each for each in entries)
