"""The restores of all stream threads on the driver: calls of the listener, and a line about the present ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.spark.crash_notes import LONG_STEP_S
from penstock.engines.threads.hosting.thread_phase import phase_of
from penstock.log.base import TopicPartition
from penstock.state.restores.listener import StateRestoreListener
from penstock.state.restores.progress import RestoreProgress
from penstock.state.restores.restore import Restore

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.thread_state import ThreadState

__all__ = ["RestoreWatch"]

_log = own_logger(__name__)
_Place = tuple[str, str, int]


class RestoreWatch:
    """Makes calls of a `StateRestoreListener` out of the reports of threads.

    Args:
        listener: The listener; what it raises is logged.
    """

    def __init__(self, listener: StateRestoreListener | None = None) -> None:
        self._listener = listener or StateRestoreListener()
        self._known: dict[_Place, RestoreProgress] = {}
        self._threads: Mapping[str, ThreadState] = {}
        self._lock = threading.Lock()

    def look(self, threads: Mapping[str, ThreadState]) -> None:
        """Call the listener for everything that has happened since the last look.

        Args:
            threads: The threads with their newest reports.
        """
        with self._lock:
            restores = {
                (name, each["store"], each["partition"]): RestoreProgress(**each)
                for name, thread in threads.items()
                for each in thread.report.get("restores", ())
            }
            for key, progress in restores.items():
                self._moved(self._known.get(key), progress)
            for key, before in self._known.items():
                if key not in restores and not before.is_done:
                    self._call(self._listener.on_restore_suspended, before, before.restored)
            self._known, self._threads = restores, threads

    def phase(self) -> str:
        """Describe what stream threads do that seem stuck."""
        return self.doing() or phase_of(dict(self._threads), time.monotonic())

    def long_steps(self) -> list[dict[str, Any]]:
        """Return the tasks that are in one step of their thread for long: task, what, seconds."""
        steps = [(name, each.report.get("doing") or {}) for name, each in sorted(dict(self._threads).items())]
        return [
            {
                "task": step["task"] or name,
                "what": f"{name} is in the step {step['step']!r} of it since {step['seconds']:.0f} s",
                "seconds": step["seconds"],
            }
            for name, step in steps
            if step and step["step"] != "poll" and step["seconds"] > LONG_STEP_S
        ]

    def under_way(self) -> list[Restore]:
        """Return the restores that have not ended."""
        with self._lock:
            running = [(key, each) for key, each in self._known.items() if not each.is_done]
        return [Restore.of_changelog(each, key[0]) for key, each in running]

    def doing(self) -> str:
        """Describe the restores that are under way; empty if there are none."""
        with self._lock:
            running = [each for each in self._known.values() if not each.is_done]
        if not running:
            return ""
        share = sum(each.offset - each.start for each in running) / sum(each.end - each.start for each in running)
        first = f"restoring {running[0].store}, partition {running[0].partition}"
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        return f"{first}{more}: {share:.0%}"

    def _moved(self, before: RestoreProgress | None, now: RestoreProgress) -> None:
        if before is not None and (now.start, now.end) != (before.start, before.end) and not before.is_done:
            self._call(self._listener.on_restore_suspended, before, before.restored)
        if before is None or (now.start, now.end) != (before.start, before.end) or now.restored < before.restored:
            self._call(self._listener.on_restore_start, now, now.start, now.end)
            before = None
        done = 0 if before is None else before.restored
        if now.restored > done:
            self._call(self._listener.on_batch_restored, now, now.offset, now.restored - done)
        if now.is_done and (before is None or not before.is_done):
            self._call(self._listener.on_restore_end, now, now.restored)

    def _call(self, method: Callable[..., None], at: RestoreProgress, *facts: int) -> None:
        try:
            method(TopicPartition(at.topic, at.partition), at.store, *facts)
        except Exception:  # noqa: BLE001 - logged; the application goes on
            _log.exception("the restore listener raised")
