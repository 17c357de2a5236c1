"""Processes in which Spark plans: forked from one that has imported what they need, and otherwise like any others."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest

from eventually import eventually
from penstock.engines.spark import forked_processes
from penstock.engines.spark.worker_daemon import DaemonAhead
from penstock.engines.spark.worker_python import worker_python

PLANNER = ("-m", "pyspark.sql.streaming.python_streaming_source_runner")
DAEMON = ("-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source")


@pytest.fixture(scope="module")
def ahead() -> Iterator[DaemonAhead]:
    started = DaemonAhead({}, plans=True)
    yield started
    started.end()
    assert started._process.wait(60) == 0
    eventually(lambda: started._forks is not None and not started._forks.exists())


@contextmanager
def _started_by_spark(arguments: tuple[str, ...], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command, pipe = [worker_python(Path(pyspark.__file__).parent), *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env={**os.environ, **environment}) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _planner(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process, socket.socket]]:
    """The process that Spark has started, the one that has connected, and its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        spark = {"PYTHON_WORKER_FACTORY_PORT": str(listening.getsockname()[1]), "PYTHON_WORKER_FACTORY_SECRET": "s"}
        with _started_by_spark(PLANNER, {**environment, **spark}) as process, listening.accept()[0] as connection:
            assert connection.recv(5, socket.MSG_WAITALL) == struct.pack("!i", 1) + b"s"
            connection.sendall(struct.pack("!i", 2) + b"ok")
            (number,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
            yield process, psutil.Process(number), connection


def test_a_planner_is_forked_and_ends_with_the_process_that_spark_knows(ahead: DaemonAhead) -> None:
    with _planner(ahead.environment_of_java) as (process, planner, _):
        assert planner.pid != process.pid
        assert planner.name() == "python_streamin"  # tests/faults/test_lost_processes.py kills it by that name
        assert planner.parents()[1].pid == ahead._process.pid
        process.terminate()  # as Spark does
        eventually(lambda: not planner.is_running())
    with _planner(ahead.environment_of_java) as (process, _, connection):
        connection.close()  # Java has gone
        assert process.wait(60) == 0


def test_a_daemon_of_planning_has_arguments_environment_and_streams(ahead: DaemonAhead) -> None:
    with _started_by_spark(DAEMON, {**ahead.environment_of_java, "PYTHON_WORKER_FACTORY_SECRET": "s"}) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        (port,) = struct.unpack("!i", process.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            worker = psutil.Process(struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))[0])
            assert worker.parents()[2].pid == ahead._process.pid
        process.stdin.close()  # as Spark ends it
        assert process.wait(60) == 0


def test_without_one_the_process_goes_on_by_itself(tmp_path: Path) -> None:
    gone = {forked_processes.ENVIRONMENT: f"{tmp_path / 'socket'}{os.pathsep}{sys.executable}"}
    with _planner(gone) as (process, planner, _):
        assert planner.pid == process.pid
        assert forked_processes.ENVIRONMENT not in planner.environ()


def test_no_stranger_gets_streams_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/socket")
        listening.listen(1)
        listening.setblocking(False)
        monkeypatch.setenv(forked_processes.ENVIRONMENT, f"{folder}/socket{os.pathsep}{sys.executable}")
        monkeypatch.setattr(os, "getuid", lambda: Path(folder).stat().st_uid + 1)
        forked_processes._ask()
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_it_names_modules_that_are_there() -> None:
    for name in forked_processes._NEEDED:
        __import__(name)
