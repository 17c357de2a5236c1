"""The start of Spark's JVM, calls to it without noise in the log, and signals while an application starts and runs."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any, TypeVar

import numpy as np
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import types

from penstock.base.log_lines import json_line_of, writes_json

__all__ = [
    "as_json",
    "call_in_thread",
    "forward",
    "interruptible",
    "launch_jvm",
    "silence_py4j",
    "stop_on_signals",
    "without_stray_traces",
]

T = TypeVar("T")
_BEGIN = b"Traceback (most recent call last):"
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")
_FRAME = re.compile(rb'^\s+File "([^"]+)", line \d+')
_CLOSED = re.compile(
    rb"^(BrokenPipeError|ConnectionResetError|EOFError)\b|^[\w.]*PySparkRuntimeError: \[CANNOT_OPEN_SOCKET\]"
)
_HEADINGS = (b"PySpark daemon failed to flush", b"PySpark worker failed with exception")
_NOISE = (b"WARNING: Using incubator modules:",)
_MOST_LINES = 400


def _keep_calls_cheap() -> None:
    """Have PySpark look at the arguments of calls without its tests: 4.3 asks these whether NumPy is there.

    They import pandas, 35 MB and half a second of CPU time. NumPy is there: the answers are the same.
    """

    def is_scalar(_: object, value: object) -> bool:
        return isinstance(value, np.generic)

    def is_array(_: object, value: object) -> bool:
        return isinstance(value, np.ndarray) and value.ndim == 1

    for name, can_convert in (("NumpyScalarConverter", is_scalar), ("NumpyArrayConverter", is_array)):
        if (converter := getattr(types, name, None)) is not None:
            converter.can_convert = can_convert


def launch_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM in a process group of its own, unless this process has one.

    A signal to the group of this process (a supervisor's SIGTERM, Ctrl-C) would end the JVM before the application has
    stopped. It still ends with this process: when its standard input is closed.
    """
    if SparkContext._gateway is None:  # noqa: SLF001 - there is no public way
        _keep_calls_cheap()
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
    returned: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(make())
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = threading.Thread(target=run, name="penstock-spark-start", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return returned[0]


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


def forward(pipe: IO[bytes]) -> None:
    """Start a thread that copies a pipe to this process's error stream, without stray traces."""
    target = os.dup(2)  # the present one, which may be replaced by a file during the start

    def run() -> None:
        try:
            for line in without_stray_traces(pipe):
                os.write(target, as_json(line) if writes_json() else line)
        except (OSError, ValueError):
            return  # closed

    threading.Thread(target=run, name="penstock-spark-stderr", daemon=True).start()


def as_json(line: bytes) -> bytes:
    """Return a line of Spark's processes as a JSON object; those of Python's workers are objects already."""
    text = line.decode("utf-8", "replace").rstrip("\n")
    return f"{json_line_of(text, 'spark')}\n".encode() if text.strip() else b""


def without_stray_traces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Filter lines: leave out those of stray traces.

    A trace is stray if all of its frames are PySpark's or Python's own, and its error is a closed connection.
    """
    trace: list[bytes] = []  # the lines that may be part of a stray trace
    ended = False  # by the line that names the error; another trace may be chained to it
    for line in lines:
        is_of_another = bool(trace) and ended and _is_of_another(trace, line)
        if trace and (is_of_another or _belongs(line, ended=ended)) and len(trace) < _MOST_LINES:
            trace.append(line)
            if line.strip():
                ended = (is_of_another or not ended) and _is_last(line)
            if line.startswith((_BEGIN, *_CHAINED)):
                ended = False
            continue
        if trace and not _is_stray(trace):
            yield from trace
        trace = []
        if line.startswith((_BEGIN, *_HEADINGS)):
            trace, ended = [line], False
        elif not line.startswith(_NOISE):
            yield line
    if not _is_stray(trace):
        yield from trace


def _belongs(line: bytes, *, ended: bool) -> bool:
    """Return whether a line continues a trace; ``ended``: the trace has already named its error."""
    return not ended or not line.strip() or line.startswith(_CHAINED)


def _is_of_another(trace: list[bytes], line: bytes) -> bool:
    """Return whether a line continues the other of two stray traces, whose lines mix: two processes write at once."""
    begun = sum(each.startswith(_BEGIN) for each in trace)
    is_open = begun > len(_errors(trace)) and _is_stray(trace)
    return is_open and (line.startswith(b" ") or _CLOSED.match(line) is not None)


def _is_last(line: bytes) -> bool:
    return not line.startswith((b" ", _BEGIN, *_CHAINED))


def _errors(trace: list[bytes]) -> list[bytes]:
    """Return the lines that name errors."""
    return [line for line in trace if line.strip() and _is_last(line) and not line.startswith(_HEADINGS)]


def _is_stray(trace: list[bytes]) -> bool:
    files = [match[1].decode("utf-8", "replace") for line in trace if (match := _FRAME.match(line))]
    named = _errors(trace)
    return bool(named) and _CLOSED.match(named[-1]) is not None and all(_is_pythons(file) for file in files)


def _is_pythons(file: str) -> bool:
    return "pyspark" in re.split(r"[/\\]|\.zip", file) or file.startswith(("<frozen", _LIBRARY))


_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - a prefix


_LOOK_S = 0.05


@contextmanager
def stop_on_signals(stopping: threading.Event) -> Iterator[list[int]]:
    """Set the event at SIGINT and SIGTERM; a second signal ends the process at once, which loses nothing.

    Yields the list of the signals that have come.

    In other threads than the main one, which receive no signals, it does nothing.
    """

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
        if stopping.is_set():
            os._exit(128 + number)
        signals.append(number)
        stopping.set()

    signals: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruptible(start: Callable[[], None], stopping: threading.Event, signals: Sequence[int] = ()) -> None:
    """Call ``start`` in a thread of its own and wait for it.

    A start is a series of calls to the JVM, none of which can be interrupted cleanly. So when ``stopping`` is set
    meanwhile, this thread no longer waits.

    Raises:
        SystemExit: ``stopping`` was set; the exit code is that of a program that the first of ``signals`` has ended in
            a shell: 143 for SIGTERM, else 130, as for Ctrl-C.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            start()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = threading.Thread(target=run, name="penstock-start", daemon=True)
    thread.start()
    while thread.is_alive() and not stopping.is_set():
        thread.join(_LOOK_S)
    if thread.is_alive():
        silence_py4j().__enter__()  # for good: the process ends
        raise SystemExit(128 + next(iter(signals), signal.SIGINT))
    if failed:
        raise failed[0]
