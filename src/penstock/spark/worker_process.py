"""What a Python worker of Spark is told about itself: one core, and memory that it keeps from batch to batch."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import IO, Any

__all__ = ["ENVIRONMENT", "prepare_worker"]

# A batch takes and gives back the same hundreds of megabytes as the one before. An allocator that returns them to the
# operating system has them mapped and cleared again, page by page: a third of the CPU time of reading Kafka.
_KEEP_MS = "10000"
_MAPPED_ALONE_BYTES = 32 << 20  # the most that glibc takes
_KEPT_BYTES = 1 << 30
_AT_ONCE_BYTES = 16 << 20

# For workers of a session that Penstock makes; libraries read these as they are loaded.
ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MIMALLOC_PURGE_DELAY": _KEEP_MS,  # Arrow
    "_RJEM_MALLOC_CONF": f"dirty_decay_ms:{_KEEP_MS},muzzy_decay_ms:-1",  # Polars
    "PYTHONWARNINGS": "ignore::FutureWarning",
}
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # mallopt(3)


@cache
def prepare_worker() -> None:
    """To be called before the first work; again it does nothing.

    Each worker has one core: Polars and Arrow must not start a pool for all cores of the machine.
    """
    # Polars is not loaded yet. What stands there for its allocator came from the driver's process, where Polars set it.
    os.environ.setdefault("POLARS_MAX_THREADS", ENVIRONMENT["POLARS_MAX_THREADS"])
    os.environ["_RJEM_MALLOC_CONF"] = ENVIRONMENT["_RJEM_MALLOC_CONF"]
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    _keep_memory()
    _end_with_connection()


def _end_with_connection() -> None:
    """Has a worker end when Spark has closed the connection to it, idle or at work.

    PySpark would print a trace because it cannot write there what has happened.
    """
    import pyspark.worker

    worker: Any = pyspark.worker  # which has no types for what it imports
    tell: Callable[..., None] = worker.handle_worker_exception

    def told(error: BaseException, outfile: IO[bytes], *rest: object) -> None:
        tell(error, outfile, *rest)
        try:
            outfile.flush()
        except OSError:
            os._exit(0)

    worker.handle_worker_exception = told


def _keep_memory() -> None:
    with suppress(OSError, AttributeError, TypeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TOP_PAD, _AT_ONCE_BYTES)
