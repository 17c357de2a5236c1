"""The restores of all stream threads on the driver: calls of the listener, lines about them and about the threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.engines.spark.crash_notes import LONG_STEP_S
from penstock.log.base import TopicPartition
from penstock.state.restores.restore_progress import Restore, RestoreProgress, StateRestoreListener

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.thread_state import ThreadState

__all__ = ["RestoreWatch", "phase_of"]

_log = own_logger(__name__)
_LONG_S = 5.0  # in one step, or without a report: less is the common course
_MOST = 3
_Place = tuple[str, str, int]


class RestoreWatch:
    """The calls of a `StateRestoreListener` that follow from the reports of threads.

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


def phase_of(threads: Mapping[str, ThreadState], now: float) -> str:
    """Describe the threads that hold the application up: silent ones, long steps of tasks, partitions that stand still.

    Args:
        threads: The threads with their newest reports.
        now: The time of the monotonic clock, in seconds.

    >>> phase_of({}, 0.0)
    'no stream thread has started yet: Spark has no free cores, or cannot start Python workers'
    """
    if not threads:
        return "no stream thread has started yet: Spark has no free cores, or cannot start Python workers"
    sentences = [said for name, thread in sorted(threads.items()) for said in _of_thread(name, thread, now)]
    more = f"; and {len(sentences) - _MOST} more" if len(sentences) > _MOST else ""
    return "; ".join(sentences[:_MOST]) + more if sentences else "stream threads wait for the broker"


def _of_thread(name: str, thread: ThreadState, now: float) -> list[str]:
    where = f"{name} on {thread.host}" if thread.host else name
    if now - thread.heard > _LONG_S:
        return [f"{where} has not reported for {now - thread.heard:.0f} s"]
    doing = thread.report.get("doing")
    if doing is not None and doing["step"] != "poll" and doing["seconds"] > _LONG_S:
        task = f"task {doing['task']} " if doing["task"] else ""
        return [f"{where}: {task}is in the step {doing['step']!r} since {doing['seconds']:.0f} s"]
    return _waiting(where, thread.report)


def _waiting(where: str, report: Mapping[str, Any]) -> list[str]:
    """Describe the partition that has most of what a thread waits for: there, but not to be read."""
    positions = report.get("positions", {})
    waits = {name: end - positions.get(name, end) for name, end in report.get("ends", {}).items()}
    name = max(waits, key=lambda each: waits[each], default="")
    if not name or waits[name] <= 0:
        return []
    silent_s = (unix_ms() - report.get("committed_ms", unix_ms())) / 1000
    at = f"{name} stands at offset {positions[name]:,} of {report['ends'][name]:,}, last commit {silent_s:.0f} s ago"
    return [f"{where}: {at}: the broker does not answer, or a transaction stays open"]
