"""Spark's daemon of Python workers, which has imported what each of them needs before it forks them.

PySpark's own forks empty processes: each worker imports the same 1,000 modules once more, 0.9 s of CPU time and 60 MB
each. Here they are imported once, and workers share the memory. When it forks, no other thread runs Python code, and
nothing is open: what the modules start (threads of the allocators) a worker can do without.

Spark starts it by the setting ``spark.python.daemon.module``, where all of it runs in one process.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module

from penstock.base.late_pandas import keep_pandas_out

__all__ = ["main"]

_NEEDED = (  # by tasks of both modes over an embedded log; what else they need they import themselves
    "pyspark.worker",
    "penstock.api.topology",
    "penstock.engines.threads.hosting.control_client",
    "penstock.engines.threads.hosting.hosted_tasks",
    "penstock.engines.threads.hosting.thread_host",
    "penstock.engines.threads.loop.bounded",
    "penstock.engines.threads.loop.thread",
    "penstock.engines.threads.replicas.cleanup",
    "penstock.log.embedded.log",
    "penstock.serde.model_serde",
    "penstock.serde.serdes",
)


def main() -> None:
    """Import what workers need, and be PySpark's daemon."""
    keep_pandas_out()
    for name in _NEEDED:
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001 - a worker that needs it says so where the user sees it
            print(f"{name} cannot be imported ahead: {error!r}", file=sys.stderr)
    os.register_at_fork(after_in_child=_draw_other_numbers)
    gc.collect()
    gc.freeze()  # a collection in a worker would write to each object, and so copy the shared pages
    from pyspark import daemon

    manager: Callable[[], None] = daemon.manager
    manager()


def _draw_other_numbers() -> None:
    """Seed NumPy's own generator anew, as Python does with its own: workers would draw the same numbers."""
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()


if __name__ == "__main__":
    main()
