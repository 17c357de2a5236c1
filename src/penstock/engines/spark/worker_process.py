"""Settings of a Python worker process of Spark: one core, and memory that it keeps from batch to batch.

What it keeps it gives back when it has been idle for some seconds.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import IO, Any

from penstock.base.late_pandas import keep_pandas_out
from penstock.base.log_lines import follow_environment
from penstock.engines.spark.machine_limits import raise_file_limit
from penstock.state.free_memory import keep_on_heap, release_memory

__all__ = ["ENVIRONMENT", "handle_release", "prepare_worker", "release_everywhere"]

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
    """Says when a process that has worked is idle, by its CPU time at looks in equal intervals.

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
