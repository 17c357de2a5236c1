"""Checks that a process of this machine still runs; its id alone may have been reused by another one."""

from __future__ import annotations

import os

__all__ = ["process_start", "runs_here"]


def process_start(pid: int) -> str:
    """Return the start time of a process, as the kernel reports it; empty if it does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - a pseudo file
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def runs_here(pid: int, start: str) -> bool:
    """Return whether the process of this id runs and is the one with this start time."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return start == process_start(pid)
