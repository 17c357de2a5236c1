"""Notes of the restores of a stream thread, for its reports."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.state.restores.restore_progress import RestoreProgress

__all__ = ["RestoreNotes"]

_KEPT_S = 30.0  # after the end of a restore: reports follow each other in a second


class RestoreNotes:
    """The newest progress of each store; a restore that has ended is named for a while, so that no report misses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, int], tuple[float, RestoreProgress]] = {}

    def note(self, progress: RestoreProgress) -> None:
        """Note the progress of a store."""
        with self._lock:
            self._found[progress.store, progress.partition] = (time.monotonic(), progress)

    def newest(self) -> list[dict[str, Any]]:
        """Return the newest progress of each store, as JSON holds it."""
        old = time.monotonic() - _KEPT_S
        with self._lock:
            self._found = {key: note for key, note in self._found.items() if note[0] > old or not note[1].is_done}
            return [asdict(progress) for _, progress in self._found.values()]
