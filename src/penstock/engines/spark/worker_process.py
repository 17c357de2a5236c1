"""The limits of a machine and of a Python worker process of Spark: one core, open files, and memory that it keeps.

What it keeps it gives back when it has been idle for some seconds.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from penstock.base.late_pandas import keep_pandas_out
from penstock.base.log_lines import follow_environment, own_logger
from penstock.errors import EnvironmentProblemError
from penstock.state.free_memory import keep_on_heap, release_memory

if TYPE_CHECKING:
    from penstock.topology.plan.plan import PhysicalPlan

__all__ = [
    "ENVIRONMENT",
    "check_open_files",
    "handle_release",
    "open_task_limit",
    "prepare_worker",
    "raise_file_limit",
    "release_everywhere",
]

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


# A batch allocates and frees the same hundreds of megabytes as the one before. An allocator that returns them to the
# operating system has them mapped and cleared again, page by page: a third of the CPU time of fetching from Kafka.
_KEEP_MS = "10000"
_KEPT_BYTES = 1 << 30
_AT_ONCE_BYTES = 16 << 20
_LOOK_S = 5.0
_QUIET_LOOKS = 2
_IDLE_SHARE = 0.05  # of a core
_RELEASE = getattr(signal, "SIGURG", None)  # which does nothing where nobody handles it; Windows has none

# For workers of a session that Penstock makes; libraries read these as they are loaded.
ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MIMALLOC_PURGE_DELAY": _KEEP_MS,  # Arrow
    "_RJEM_MALLOC_CONF": f"background_thread:true,dirty_decay_ms:{_KEEP_MS},muzzy_decay_ms:0",  # Polars
    "PYTHONWARNINGS": "ignore::FutureWarning",
}


@cache
def prepare_worker() -> None:
    """Set up this worker process before its first work; further calls do nothing.

    Each worker has one core: Polars and Arrow must not start a pool for all cores of the machine.
    """
    # Polars is not loaded yet. The allocator's setting came from the driver's process, where Polars set it.
    os.environ.setdefault("POLARS_MAX_THREADS", ENVIRONMENT["POLARS_MAX_THREADS"])
    os.environ["_RJEM_MALLOC_CONF"] = ENVIRONMENT["_RJEM_MALLOC_CONF"]
    follow_environment()
    keep_pandas_out()
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    raise_file_limit()
    keep_on_heap(_KEPT_BYTES, _AT_ONCE_BYTES)
    _release_when_idle()
    _end_with_connection()


def _end_with_connection() -> None:
    """Make the worker end silently when Spark has closed the connection to it, idle or at work.

    PySpark would print a stack trace, because it cannot send the error over that connection.
    """
    import pyspark.worker

    worker: Any = pyspark.worker  # no types for what it imports
    send_error: Callable[..., None] = worker.handle_worker_exception

    def send_or_exit(error: BaseException, outfile: IO[bytes], *rest: object) -> None:
        send_error(error, outfile, *rest)
        try:
            outfile.flush()
        except OSError:
            os._exit(0)

    worker.handle_worker_exception = send_or_exit


def _release_when_idle() -> None:
    """Give back memory that has not been used for some time, from a thread of its own until the process ends."""
    handle_release()
    threading.Thread(target=_look_for_idleness, name="penstock-memory", daemon=True).start()


def _look_for_idleness() -> None:
    keeper = _Keeper(time.process_time())
    while True:
        time.sleep(_LOOK_S)
        if keeper.is_idle(time.process_time()):
            release_everywhere()


def handle_release() -> None:
    """Have the main thread give back memory when `release_everywhere` asks it to."""
    is_main = threading.current_thread() is threading.main_thread()
    if _RELEASE is not None and is_main and signal.getsignal(_RELEASE) in (signal.SIG_DFL, signal.SIG_IGN):
        signal.signal(_RELEASE, _on_release)


def _on_release(number: int, frame: object) -> None:  # noqa: ARG001 - as handlers are called
    release_memory()


def release_everywhere() -> None:
    """Give back the memory that is not in use, also what the main thread has freed.

    Arrow's allocator gives back only what the calling thread has freed: hundreds of megabytes after large records. The
    main thread waits for Spark in a read, which goes on after a signal.
    """
    release_memory()
    if _RELEASE is not None and signal.getsignal(_RELEASE) is _on_release:
        signal.pthread_kill(threading.main_thread().ident or 0, _RELEASE)


class _Keeper:
    """The rule that says when a process that has worked is idle, by its CPU time at looks in equal intervals.

    >>> keeper = _Keeper(1.0)
    >>> [keeper.is_idle(cpu_s) for cpu_s in (3.0, 3.1, 3.2, 3.3, 9.0, 9.1, 9.2)]
    [False, False, True, False, False, False, True]
    """

    def __init__(self, cpu_s: float) -> None:
        self._cpu_s = cpu_s
        self._quiet = 0  # looks at which little had been done since the one before
        self._has_worked = False

    def is_idle(self, cpu_s: float) -> bool:
        """Return True once after work, when little has been done between three looks."""
        passed, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        if passed > _IDLE_SHARE * _LOOK_S:
            self._quiet, self._has_worked = 0, True
            return False
        self._quiet += 1
        if self._quiet < _QUIET_LOOKS or not self._has_worked:
            return False
        self._has_worked = False
        return True
