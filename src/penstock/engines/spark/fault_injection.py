"""Killing of the application at a chosen step, for the fault tests.

``PENSTOCK_FAULT=step:batch:task`` ends driver, JVM and worker with SIGKILL when that task reaches that step of that
batch; the steps are those of the exactly-once protocol: 0 before processing, 1 processed, 2 segment published,
3 outputs written, 4 task done, 5 batch committed by Spark but not yet to the consumer group (the task is ``driver``).
The steps of a conversion have names, such as ``convert-switched`` (see `penstock.engines.conversion`).
``*`` stands for any task or batch. ``@file`` reads the value from a file, which may appear while the application runs.
Without the variable nothing happens.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

__all__ = ["FAULT", "reach"]

FAULT = os.environ.get("PENSTOCK_FAULT", "")


def reach(step: int | str, batch: int, task: str, driver_pid: int) -> None:
    """Kill the application if this is the chosen point; called by a task, or for step 5 by the driver."""
    if not FAULT:
        return
    point = _wanted()
    if point[:1] != [str(step)] or point[1] not in ("*", str(batch)) or point[2] not in ("*", task):
        return
    others = () if os.getpid() == driver_pid else (driver_pid, os.getppid(), _parent_of(os.getppid()))
    for pid in (*others, os.getpid()):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _wanted() -> list[str]:
    if not FAULT.startswith("@"):
        return FAULT.split(":")
    try:
        with open(FAULT[1:], encoding="utf-8") as file:  # noqa: PTH123 - once a step: nothing to import for it
            return file.read().split(":")
    except FileNotFoundError:
        return []


def _parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - a pseudo file
        return int(file.read().rpartition(")")[2].split()[1])
