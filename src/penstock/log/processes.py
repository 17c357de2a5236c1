"""Whether a process of this machine still runs: its number alone may have been given to another one."""

from __future__ import annotations

import os

__all__ = ["process_start", "runs_here"]


def process_start(pid: int) -> str:
    """When the kernel says that the process started; empty where it does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - a pseudo file
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def runs_here(pid: int, start: str) -> bool:
    """Whether the process of this number is there, and is the one that started then."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return start == process_start(pid)
