"""The lag of the committed state in records; queries never wait for the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from penstock.base.log_lines import own_logger
from penstock.query.source import NewestCommit

__all__ = ["Ends", "ReplicaLagWatch"]

_log = own_logger(__name__)
_EVERY_S = 1.0
_IDLE_S = 10.0

Ends = Mapping[str, Mapping[int, int]]


class ReplicaLagWatch:
    """A thread that fetches the end offsets of topics while the lag is in use.

    Args:
        ends: Returns topic -> partition -> end offset for these topics; called in the thread.
    """

    def __init__(self, ends: Callable[[list[str]], Ends]) -> None:
        self._ends = ends
        self._topics: list[str] = []
        self._newest_ends: Ends | None = None
        self._asked_s = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def behind(self, commit: NewestCommit | None) -> int | None:
        """Return the number of records after the newest commit; None if unknown (yet)."""
        if commit is None:
            return None
        self._topics = list(commit.ends)
        self._asked_s = time.monotonic()
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._watch, name="penstock-lag", daemon=True)
                self._thread.start()
        ends = self._newest_ends
        if ends is None:
            return None
        return sum(
            max(0, end - commit.ends[topic].get(partition, 0))
            for topic, parts in ends.items()
            if topic in commit.ends
            for partition, end in parts.items()
        )

    def _watch(self) -> None:
        while time.monotonic() - self._asked_s < _IDLE_S:
            try:
                self._newest_ends = self._ends(self._topics)
            except Exception as error:  # noqa: BLE001 - a log may fail in many ways, and queries go on
                _log.debug("the ends of the topics are not known: %s", error)
                self._newest_ends = None
            if self._stop.wait(_EVERY_S):
                break
        with self._lock:
            self._thread = None
            self._newest_ends = None

    def close(self) -> None:
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join(5)
        if hasattr(self._ends, "close"):
            self._ends.close()
