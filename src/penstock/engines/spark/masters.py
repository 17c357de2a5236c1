"""Spark's master URLs: what Spark does with the tasks of lost processes."""

from __future__ import annotations

import re

__all__ = ["is_one_process", "retries_tasks", "with_retries"]

_LOCAL = re.compile(r"local(?:\[\s*([0-9]+|\*)\s*(?:,\s*([0-9]+)\s*)?\])?")


def is_one_process(master: str) -> bool:
    """Return whether all of Spark's JVM parts run in the driver's process.

    >>> is_one_process("local[*]"), is_one_process("local-cluster[2,1,1024]")
    (True, False)
    """
    return _LOCAL.fullmatch(master) is not None


def retries_tasks(master: str) -> bool:
    """Return whether Spark runs a failed task again while the others go on, and does not end the job.

    >>> retries_tasks("local[2]"), retries_tasks("local[2,4]"), retries_tasks("spark://host:7077")
    (False, True, True)
    """
    found = _LOCAL.fullmatch(master)
    return found is None or int(found[2] or 1) > 1


def with_retries(master: str, failures: int) -> str:
    """Return the master with the number of failures of a task that end a job, which Spark reads only there if local.

    A master that names a number keeps it.

    >>> with_retries("local[*]", 16), with_retries("local", 4), with_retries("local[2,1]", 4)
    ('local[*,16]', 'local[1,4]', 'local[2,1]')
    """
    found = _LOCAL.fullmatch(master)
    return master if found is None or found[2] else f"local[{found[1] or 1},{failures}]"
