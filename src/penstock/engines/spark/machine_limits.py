"""Limits of a machine for a process (open files, memory), and the number of open tasks that fits into them."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.errors import EnvironmentProblemError

if TYPE_CHECKING:
    from penstock.topology.plan.plan import PhysicalPlan

__all__ = ["check_open_files", "open_task_limit", "raise_file_limit"]

_log = own_logger(__name__)
_FILES_A_TASK = 4  # two of LMDB, two for its lock
_OTHER_FILES = 256  # of a worker: sockets, libraries, the log
_LEAST_FILES = 512
_TASK_BYTES = 1 << 20  # of an open task: replica, operators and their views; measured with small ones
_MEMORY_SHARE = 0.25  # of a machine's memory, for the open tasks of all its workers
_LEAST_TASKS = 16
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def raise_file_limit() -> int:
    """Raise the soft limit of this process's open files to the hard limit; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # the kernel may have a lower limit than it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


@cache
def open_task_limit() -> int:
    """Return the number of tasks that a worker keeps open between batches, by its limits of files and memory."""
    return tasks_that_fit(raise_file_limit(), _memory_bytes(), os.cpu_count() or 1)


def tasks_that_fit(files: int, memory_bytes: int, workers: int) -> int:
    """Compute the number of tasks that each worker of a machine may keep open.

    Args:
        files: The number of files that a process may open.
        memory_bytes: The machine's memory.
        workers: The number of workers on the machine.

    Example:
        >>> tasks_that_fit(1024, 64 << 30, 8), tasks_that_fit(1 << 20, 16 << 30, 8)
        (192, 512)
    """
    by_files = (files - _OTHER_FILES) // _FILES_A_TASK
    by_memory = int(memory_bytes * _MEMORY_SHARE) // workers // _TASK_BYTES
    return max(_LEAST_TASKS, min(by_files, by_memory))


def check_open_files(plan: PhysicalPlan) -> None:
    """Check before a start that the limit of open files suffices; warn if not all tasks can stay open.

    Spark's workers inherit the limit of this process.

    Raises:
        EnvironmentProblemError: A worker could not open its libraries, its log and a few tasks.
    """
    limit = raise_file_limit()
    tasks = sum(sub.tasks for sub in plan.subtopologies if sub.keeps_state)
    needed_files = _OTHER_FILES + tasks * _FILES_A_TASK
    remedy = (
        f"Raise it before the start: ulimit -n {max(needed_files, _LEAST_FILES)} (or LimitNOFILE= of a systemd unit)."
    )
    if limit < _LEAST_FILES:
        raise EnvironmentProblemError(
            f"a process may open {limit} files here; an application needs {_LEAST_FILES} at least",
            hint=remedy,
            limit=limit,
        )
    if limit < needed_files:
        _log.warning(
            "A process may open %d files here, so a worker keeps %d of %d tasks with state open between batches; it "
            "opens the others in each batch, which takes some milliseconds each. %s",
            limit, (limit - _OTHER_FILES) // _FILES_A_TASK, tasks, remedy,
        )  # fmt: skip


def _memory_bytes() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # no container, or one without a limit
        memory = min(memory, int(_CGROUP_LIMIT.read_text()))
    return memory
