"""Spark's master URLs: what Spark does with the tasks of lost processes."""

from __future__ import annotations

import re

__all__ = ["is_one_process", "retries_tasks", "with_retries", "with_spare_slots"]

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
    match = _LOCAL.fullmatch(master)
    return match is None or int(match[2] or 1) > 1


def with_retries(master: str, failures: int) -> str:
    """Return the master with the number of failures of a task that end a job, which Spark reads only there if local.

    A master that names a number keeps it.

    >>> with_retries("local[*]", 16), with_retries("local", 4), with_retries("local[2,1]", 4)
    ('local[*,16]', 'local[1,4]', 'local[2,1]')
    """
    match = _LOCAL.fullmatch(master)
    return master if match is None or match[2] else f"local[{match[1] or 1},{failures}]"


def with_spare_slots(master: str, spare: int, processors: int) -> tuple[str, int]:
    """Return a local master that runs so many tasks more at once, and the number that it has named.

    Args:
        master: A master of one process.
        spare: The number to add.
        processors: What ``*`` stands for.

    >>> with_spare_slots("local[2,16]", 4, 8), with_spare_slots("local[*]", 4, 8)
    (('local[6,16]', 2), ('local[12]', 8))
    """
    match = _LOCAL.fullmatch(master)
    assert match is not None  # noqa: S101 - `is_one_process`
    named = processors if match[1] == "*" else int(match[1] or 1)
    return f"local[{named + spare}{f',{match[2]}' if match[2] else ''}]", named
