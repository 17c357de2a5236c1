"""spark-submit onto a real standalone cluster: what it says holds, and the application runs there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from penstock.tools.broker.broker_settings import free_port

from .conftest import Bench, long

APP = Path(__file__).with_name("counting_app.py")
BIN = Path(pyspark.__file__).parent / "bin"
PATIENCE_S = 300
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # the JVMs of a cluster that lives for seconds
LOCAL = "127.0.0.1"


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[None]:
    """One of Spark's own processes."""
    environment = {
        **os.environ, "SPARK_LOCAL_IP": LOCAL, "SPARK_DAEMON_MEMORY": "128m", "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_RUN,
        "SPARK_WORKER_DIR": str(log.with_suffix("")), "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(BIN / "spark-class"), *arguments], env=environment, stdout=output, stderr=output
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master with one worker on the loopback address; its URL."""
    port = free_port()
    url = f"spark://{LOCAL}:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        run = [f"{deploy}.master.Master", "--host", LOCAL, "--port", str(port), "--webui-port", "0"]
        stack.enter_context(daemon(tmp_path / "master.log", *run))
        run = [f"{deploy}.worker.Worker", "--host", LOCAL, "--cores", "2", "--memory", "1g", "--webui-port", "0", url]
        stack.enter_context(daemon(tmp_path / "worker.log", *run))
        deadline = time.monotonic() + PATIENCE_S
        while (
            "ALIVE" not in (tmp_path / "master.log").read_text()
            or "Registering worker" not in (tmp_path / "master.log").read_text()
        ):
            assert time.monotonic() < deadline, (tmp_path / "master.log").read_text()[-2000:]
            time.sleep(0.1)
        yield url


def test_an_application_runs_on_the_master_that_spark_submit_names(master: str, tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path / 'log.db'}"
    bench = Bench(tmp_path, None, log)
    bench.log.create_topic("words", 2)
    bench.write("words", [("k", "a", 0), ("k", "b", 1)], 0)
    bench.write("words", [("k", "a", 2)], 1)
    command = [
        str(BIN / "spark-submit"), "--master", master, "--conf", "spark.sql.adaptive.enabled=true", "--executor-memory", "512m",
        "--conf", f"spark.executor.extraJavaOptions={SHORT_RUN}",
        str(APP), log, str(tmp_path / "checkpoint"), str(tmp_path / "state"),
    ]  # fmt: skip
    environment = {**os.environ, "SPARK_LOCAL_IP": LOCAL, "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert dict(bench.read("out", long)) == {"a": 2, "b": 1}
    bench.log.close()
    assert "Registered app counting" in (tmp_path / "master.log").read_text()
    shown = done.stdout + done.stderr  # Spark joins the streams of a Python program
    assert "counting: tasks run" in shown
    assert "3 records in" in shown
    assert "wins over" not in shown
    done = subprocess.run(
        [*command, "local[2]"],
        env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = f"spark.master=local[2] of the program's config wins over spark.master={master} of spark-submit"
    assert (done.stdout + done.stderr).count(said) == 1
