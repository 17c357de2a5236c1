"""Spark's settings from outside of Penstock: spark-submit, PYSPARK_SUBMIT_ARGS, spark-defaults.conf."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

__all__ = ["submitted_settings"]

_OPTIONS = {
    "--master": "spark.master",
    "--deploy-mode": "spark.submit.deployMode",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
    "--num-executors": "spark.executor.instances",
    "--packages": "spark.jars.packages",
    "--jars": "spark.jars",
}


def submitted_settings() -> dict[str, str]:
    """Return the ``spark.*`` settings of this process, which win over Penstock's defaults.

    The application's name is left out, as spark-submit invents one.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM, and this process
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # noqa: SLF001 - connects to that JVM
        found = dict(SparkConf().getAll())
    else:
        found = {**_defaults(), **dict(_arguments(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))))}
    return {name: value for name, value in found.items() if name.startswith("spark.") and name != "spark.app.name"}


def _arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    waiting = iter(words)
    for word in waiting:
        option, _, value = word.partition("=") if word.startswith("--") else ("", "", "")
        if option in ("--conf", "-c") or word == "-c":
            name, _, value = (value or next(waiting, "")).partition("=")
            yield name, value
        elif option in _OPTIONS:
            yield _OPTIONS[option], value or next(waiting, "")


def _defaults() -> dict[str, str]:
    """Read spark-defaults.conf: a name and a value on each line."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    path = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf") / "spark-defaults.conf"
    if not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
