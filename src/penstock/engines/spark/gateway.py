"""The start of Spark's JVM, protected from this process's signals, and calls to it without noise in the log."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from penstock.engines.spark.stderr_filter import forward

__all__ = ["call_in_thread", "has_context", "launch_jvm", "silence_py4j"]

T = TypeVar("T")


def launch_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM in a process group of its own, unless this process has one.

    A signal to the group of this process (a supervisor's SIGTERM, Ctrl-C) would end the JVM before the application has
    stopped. It still ends with this process: when its standard input is closed.
    """
    if SparkContext._gateway is None:  # noqa: SLF001 - there is no public way
        conf = SparkConf()
        for name, value in settings.items():
            conf.set(name, value)
        launch: Callable[..., Any] = launch_gateway  # it has no types
        gateway = launch(conf, {"process_group": 0, "stderr": subprocess.PIPE})
        if gateway.proc is not None:  # else spark-submit has started this process's JVM
            forward(gateway.proc.stderr)
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


def call_in_thread(make: Callable[[], T]) -> T:
    """Call a function in a thread of its own and return its result.

    In the main thread PySpark would install a handler of SIGINT that interrupts calls to the JVM in the middle.
    """
    made: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(make())
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = threading.Thread(target=run, name="penstock-spark-start", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


@contextmanager
def silence_py4j() -> Iterator[None]:
    """Suppress log lines of py4j while calls to the JVM may fail on purpose, or as it may be gone.

    py4j logs each failed call with its stack trace, in part to the root logger.
    """
    no_py4j = _NotOfPy4j()
    loggers: list[Any] = [logging.getLogger(name) for name in ("", "py4j", "py4j.clientserver", "py4j.java_gateway")]
    for logger in loggers:
        logger.addFilter(no_py4j)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(no_py4j)


class _NotOfPy4j(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts


def has_context(session: Any) -> bool:
    """Return whether a session's Spark context has not been stopped."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - there is no public way
    except Exception:  # noqa: BLE001 - its JVM is gone
        return False
