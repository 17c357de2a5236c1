"""What the JVM and the workers of a new session are told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from penstock import KafkaStreams, StreamsBuilder
from penstock.engines.spark.session import _context_settings, _java_options, launch_ahead, spark_for
from penstock.engines.spark.worker_process import ENVIRONMENT
from penstock.errors import EnvironmentProblemError


@pytest.mark.parametrize(
    ("given", "rows_in_jvm", "told", "not_told"),
    [
        ("", False, ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m", "-XX:-UsePerfData"], []),
        ("", True, ["-Xss8m"], ["TieredStopAtLevel", "SerialGC", "-Xms"]),
        ("-XX:+UseZGC", False, ["-XX:TieredStopAtLevel=1", "-XX:+UseZGC"], ["SerialGC"]),
    ],
)
def test_the_jvm_spares_what_only_planning_does_not_need(
    given: str, rows_in_jvm: bool, told: list[str], not_told: list[str]
) -> None:
    options = _java_options({"spark.driver.extraJavaOptions": given}, rows_in_jvm=rows_in_jvm)
    assert [each for each in told if each not in options.split()] == []
    assert [each for each in not_told if each in options] == []


def test_what_the_user_tells_java_counts() -> None:
    options = _java_options(
        {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4 -Xms1g"}, rows_in_jvm=False
    ).split()
    assert options.index("-Xms1g") > options.index("-Xms64m")
    assert options.index("-XX:TieredStopAtLevel=4") > options.index("-XX:TieredStopAtLevel=1")


def test_on_yarn_workers_talk_over_tcp() -> None:
    """The path of a container's folder is longer than that of a socket may be."""
    name = "spark.python.unix.domain.socket.enabled"
    of = {
        master: _context_settings({}, {"spark.master": master}, rows_in_jvm=False)[name]
        for master in ("yarn", "local[2]")
    }
    assert of == {"yarn": "false", "local[2]": str(hasattr(socket, "AF_UNIX")).lower()}
    assert _context_settings({}, {"spark.master": "yarn", name: "true"}, rows_in_jvm=False)[name] == "true"


def test_a_worker_has_one_thread_whatever_the_session_said() -> None:
    program = (
        "from penstock.engines.spark.worker_process import prepare_worker\n"
        "prepare_worker(); prepare_worker()\n"
        "import os, polars, pyarrow\n"
        "print(polars.thread_pool_size(), pyarrow.cpu_count(), os.environ['_RJEM_MALLOC_CONF'])\n"
    )
    bare = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    driver = {**bare, "_RJEM_MALLOC_CONF": "dirty_decay_ms:500"}  # Polars leaves it in the driver's environment
    found = subprocess.run([sys.executable, "-c", program], env=driver, capture_output=True, text=True, check=True)
    polars_threads, arrow_threads, allocator = found.stdout.split()
    assert (polars_threads, arrow_threads) == ("1", "1")
    assert allocator.endswith(ENVIRONMENT["_RJEM_MALLOC_CONF"])


def test_a_session_of_an_older_spark_is_refused() -> None:
    """Services have Spark in their runtimes: the PySpark that pip has brought is not the one of their session."""
    session = type(
        "SparkSession", (), {"__module__": "pyspark.sql.session", "version": "4.0.1", "sparkContext": None}
    )()
    with pytest.raises(EnvironmentProblemError, match=r"Spark 4\.0\.1, and Penstock needs Spark 4\.2"):
        spark_for({}, "app", "checkpoint", session=session)


def test_a_session_of_spark_connect_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no ``sparkContext``: PySpark raises an AttributeError."""
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(EnvironmentProblemError, match="Spark Connect") as caught:
        spark_for({}, "app", "checkpoint", session=session)
    assert "builder.master" in caught.value.hint
    builder = StreamsBuilder()
    builder.stream("words").to("copies")
    config = {"application.id": "app", "bootstrap.servers": "memory://"}
    with pytest.raises(EnvironmentProblemError, match="Spark Connect"):
        KafkaStreams(builder.build(), config, session=session)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("penstock.engines.spark.session.running_session", lambda: session)
    with pytest.raises(EnvironmentProblemError, match="Spark Connect"):  # before anything is created in the log
        launch_ahead({}, None, rows_in_jvm=False, uses_sql=False)
