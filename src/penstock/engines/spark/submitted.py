"""Spark's settings from outside of Penstock: spark-submit, PYSPARK_SUBMIT_ARGS, spark-defaults.conf."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark

from penstock.base.secrets import is_secret

__all__ = ["overruled_settings", "submitted_settings"]

_MASTER, _WITHOUT_MASTER = "spark.master", "local[*]"
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
        settings = dict(SparkConf().getAll())
    else:
        settings = {**_defaults(), **dict(_arguments(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))))}
    return {name: value for name, value in settings.items() if name.startswith("spark.") and name != "spark.app.name"}


def overruled_settings(config: Mapping[str, str], submitted: Mapping[str, str]) -> str:
    """Describe the settings of spark-submit that those of the program's config win over; empty if there are none.

    >>> overruled_settings({"spark.master": "local[2]"}, {"spark.master": "spark://host:7077"})
    "spark.master=local[2] of the program's config wins over spark.master=spark://host:7077 of spark-submit or \
spark-defaults.conf: leave it out of the config to run on that master"
    >>> overruled_settings({"spark.master": "local[2]"}, {"spark.master": "local[*]"})
    ''

    Args:
        config: The settings of the program's config.
        submitted: Those of `submitted_settings`.
    """
    lost = [name for name, value in config.items() if name in submitted and submitted[name] != value]
    if submitted.get(_MASTER) == _WITHOUT_MASTER and _MASTER in lost:  # spark-submit's own default
        lost.remove(_MASTER)
    if not lost:
        return ""
    shown = {name: "***" if is_secret(name) else config[name] for name in lost}
    theirs = {name: "***" if is_secret(name) else submitted[name] for name in lost}
    wins = " and ".join(f"{name}={value}" for name, value in shown.items())
    over = " and ".join(f"{name}={value}" for name, value in theirs.items())
    verb, it = ("wins", "it") if len(lost) == 1 else ("win", "them")
    aim = " to run on that master" if _MASTER in lost else ""
    return (
        f"{wins} of the program's config {verb} over {over} of spark-submit or spark-defaults.conf: "
        f"leave {it} out of the config{aim}"
    )


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
