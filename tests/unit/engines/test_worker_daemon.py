"""The daemon that forks Spark's Python workers: its modules are loaded once, and its workers are like any others."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from eventually import eventually
from penstock.engines.spark import session, worker_daemon
from penstock.engines.spark.worker_daemon import DaemonAhead
from penstock.engines.spark.worker_python import workers_with_this_python

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
            loaded = {"polars", "pyarrow", "penstock.engines.threads.loop.stream_thread"} <= sys.modules.keys()
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
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
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


@contextmanager
def _spark(ahead: DaemonAhead, module: str = "pyspark.worker", **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process that Spark starts as its daemon, which says where workers are to be had."""
    command, pipe = [sys.executable, "-m", worker_daemon.__name__, module], subprocess.PIPE
    environment = {**os.environ, **ahead.environment, **environment}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def _parent_of_worker(process: subprocess.Popen[bytes]) -> int:
    """Who has forked a worker; it is asked while it lives, which is as long as the connection."""
    assert process.stdout is not None
    (port,) = struct.unpack("!i", process.stdout.read(4))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        return psutil.Process(struct.unpack("!i", connection.recv(4))[0]).ppid()


@pytest.fixture
def ahead() -> Iterator[DaemonAhead]:
    started = DaemonAhead({})
    yield started
    started._process.kill()


def test_one_that_was_started_ahead_goes_on_as_sparks(ahead: DaemonAhead) -> None:
    with _spark(ahead) as process:
        assert _parent_of_worker(process) == ahead._process.pid
        with _spark(ahead) as other:  # of another environment, say
            assert _parent_of_worker(other) == other.pid
        assert process.stdin is not None
        process.stdin.close()  # as Spark ends it
        assert process.wait(60) == 0
        ahead._process.wait(60)
    eventually(lambda: not ahead._folder.exists())


def test_spark_sees_that_one_which_was_started_ahead_has_died(ahead: DaemonAhead) -> None:
    with _spark(ahead) as process:
        assert _parent_of_worker(process) == ahead._process.pid
        ahead._process.kill()
        assert process.wait(60) == 0


def test_of_two_processes_of_spark_at_once_one_goes_on_by_itself(ahead: DaemonAhead) -> None:
    os.kill(ahead._process.pid, signal.SIGSTOP)  # it imports still
    with _spark(ahead) as one, _spark(ahead) as other:
        eventually(lambda: all(psutil.Process(each.pid).net_connections("unix") for each in (one, other)))
        os.kill(ahead._process.pid, signal.SIGCONT)
        parents = {each.pid: _parent_of_worker(each) for each in (one, other)}
        assert sorted(parents.values()).count(ahead._process.pid) == 1
        assert len({*parents.values()} & {*parents}) == 1


def test_what_a_worker_prints_is_seen_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyspark_prints.py").write_text("def main(infile, outfile): print('printed')")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    ahead = DaemonAhead({})
    environment = {"PYTHONUNBUFFERED": "YES", "PYTHONPATH": str(tmp_path), "PYTHON_WORKER_FACTORY_SECRET": "s"}
    with _spark(ahead, "pyspark_prints", **environment) as process:
        assert process.stdout is not None
        (port,) = struct.unpack("!i", process.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            assert psutil.Process(struct.unpack("!i", connection.recv(4))[0]).ppid() == ahead._process.pid
            connection.sendall(struct.pack("!i", 1) + b"s")
            assert select.select([process.stdout], [], [], 60)[0], "nothing has been printed"
            assert process.stdout.readline() == b"printed\n"


def test_none_is_started_ahead_for_workers_of_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = session._context_settings({}, {}, rows_in_jvm=False)
    monkeypatch.setattr(session, "_daemons", [])
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3-of-another")
    with workers_with_this_python():
        session._start_daemon(settings, plans=True)
    assert session._daemons == []


def test_one_of_a_jvm_that_did_not_start_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = session._context_settings({}, {}, rows_in_jvm=False)
    monkeypatch.setattr(session, "_daemons", [])
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    with workers_with_this_python():
        session._start_daemon(settings, plans=True)
        (first,) = session._daemons
        session._start_daemon(settings, plans=True)
    (second,) = session._daemons
    assert first._process.wait(60) == 0
    assert second._process.poll() is None
    second.end()
    assert second._process.wait(60) == 0


def test_it_leaves_no_folder_when_the_driver_dies() -> None:
    dies = "import os; from penstock.engines.spark.worker_daemon import DaemonAhead; "
    dies += "print(DaemonAhead({})._folder, flush=True); os._exit(0)"
    driver = subprocess.run([sys.executable, "-c", dies], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    eventually(lambda: not Path(driver.stdout.strip()).exists())


def test_no_stranger_gets_streams_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/socket")
        listening.listen(1)
        monkeypatch.setenv(worker_daemon._AHEAD, f"{folder}/socket{os.pathsep}{sys.executable}")
        monkeypatch.setattr(os, "getuid", lambda: Path(folder).stat().st_uid + 1)
        handing = threading.Thread(target=worker_daemon._hand_over)
        handing.start()
        handing.join(10)
        connected = select.select([listening], [], [], 0)[0]
    handing.join(60)
    assert connected == []


def test_one_that_was_started_ahead_ends_with_the_driver(ahead: DaemonAhead) -> None:
    assert ahead._process.stdin is not None
    ahead._process.stdin.close()
    assert ahead._process.wait(60) == 0
