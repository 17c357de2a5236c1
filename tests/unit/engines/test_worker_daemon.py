"""The daemon that forks Spark's Python workers: its modules are loaded once, and its workers are like any others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.engines.spark import session, worker_daemon

_FORKS = """
import os, sys
from pathlib import Path
from penstock.engines.spark import worker_daemon

def threads() -> set[str]:
    tasks = Path("/proc/self/task")
    return {(task / "comm").read_text().strip() for task in tasks.iterdir()} if tasks.exists() else set()

def fork_two() -> None:
    import numpy.random
    if pools := threads() & {"polars-0", "tokio-rt-worker"}:
        sys.exit(f"A fork does not have the threads {pools}, and would wait for them.")
    for _ in range(2):
        reading, writing = os.pipe()
        if os.fork() == 0:
            loaded = {"polars", "pyarrow", "penstock.engines.threads.loop.thread"} <= sys.modules.keys()
            import polars, pyarrow
            frame = polars.DataFrame({"one": [1, 1, 2], "two": [1, 2, 3]})
            total = frame.group_by("one").agg(polars.col("two").sum())["two"].max() + pyarrow.array([3]).to_pylist()[0]
            os.write(writing, f"{loaded} {'pandas' in sys.modules} {total} {numpy.random.random()}".encode())
            os._exit(0)
        os.wait()
        print(os.read(reading, 1000).decode())

from pyspark import daemon
daemon.manager = fork_two
worker_daemon.main()
"""


def test_workers_have_everything_loaded_and_draw_other_numbers() -> None:
    # From Python 3.12 on a fork warns of any thread, also those of the allocators.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", _FORKS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    one, two = (line.split() for line in ended.stdout.splitlines())
    assert one[:3] == two[:3] == ["True", "False", "6"]
    assert one[3] != two[3]


def test_it_names_modules_that_are_there() -> None:
    """One that is gone would cost each worker time, and nothing else would show it."""
    for name in worker_daemon._NEEDED:
        __import__(name)


def test_a_zip_that_comes_with_the_job_has_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts it before it puts the files of `--py-files` into the path."""
    name = "spark.python.daemon.module"
    assert session._context_settings({}, {}, rows_in_jvm=False)[name] == worker_daemon.__name__
    assert name not in session._context_settings({}, {"spark.master": "spark://host:7077"}, rows_in_jvm=False)
    monkeypatch.setattr(session, "__file__", "/jobs/penstock.zip/penstock/engines/spark/session.py")
    assert name not in session._context_settings({}, {}, rows_in_jvm=False)
