"""What stream threads do that commit nothing although records wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.clock import unix_ms

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.thread_state import ThreadState

__all__ = ["phase_of"]

_LONG_S = 5.0  # in one step, or without a report: less is the common course
_MOST = 3


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
