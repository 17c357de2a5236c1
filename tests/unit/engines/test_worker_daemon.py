"""The daemon that forks Spark's Python workers: its modules are loaded once, and its workers are like any others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.engines.spark import session, worker_daemon

_FORKS = """
import os, sys
import pytest

from penstock.engines.spark import session, worker_daemon

def fork_two() -> None:
    import numpy.random
    for _ in range(2):
        reading, writing = os.pipe()
        if os.fork() == 0:
            loaded = {"polars", "pyarrow", "penstock.engines.threads.loop.thread"} <= sys.modules.keys()
            import polars, pyarrow
            total = polars.Series([1, 2]).sum() + pyarrow.array([3]).to_pylist()[0]
            os.write(writing, f"{loaded} {'pandas' in sys.modules} {total} {numpy.random.random()}".encode())
            os._exit(0)
        os.wait()
        print(os.read(reading, 1000).decode())

from pyspark import daemon
daemon.manager = fork_two
worker_daemon.main()
"""


def test_workers_have_everything_loaded_and_draw_other_numbers() -> None:
    ended = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
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
