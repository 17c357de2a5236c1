"""A filter for the error stream of Spark's processes: stack traces of connections that Spark has closed are left out.

Spark ends its Python processes by closing their connections: at a stop, after a minute without work, or while one is
still starting. PySpark then prints a stack trace that does not help anybody.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator
from typing import IO

from penstock.base.log_lines import json_line_of, writes_json

__all__ = ["as_json", "forward", "without_stray_traces"]

_BEGIN = b"Traceback (most recent call last):"
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")
_FRAME = re.compile(rb'^\s+File "([^"]+)", line \d+')
_CLOSED = re.compile(
    rb"^(BrokenPipeError|ConnectionResetError|EOFError)\b|^[\w.]*PySparkRuntimeError: \[CANNOT_OPEN_SOCKET\]"
)
_HEADINGS = (b"PySpark daemon failed to flush", b"PySpark worker failed with exception")
_NOISE = (b"WARNING: Using incubator modules:",)
_MOST_LINES = 400


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
        if trace and _belongs(line, ended=ended) and len(trace) < _MOST_LINES:
            trace.append(line)
            ended = not ended and _is_last(line) if line.strip() else ended
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


def _is_last(line: bytes) -> bool:
    return not line.startswith((b" ", _BEGIN, *_CHAINED))


def _is_stray(trace: list[bytes]) -> bool:
    files = [found[1].decode("utf-8", "replace") for line in trace if (found := _FRAME.match(line))]
    named = [line for line in trace if line.strip() and _is_last(line) and not line.startswith(_HEADINGS)]
    return bool(named) and _CLOSED.match(named[-1]) is not None and all(_is_pythons(file) for file in files)


def _is_pythons(file: str) -> bool:
    return "pyspark" in re.split(r"[/\\]|\.zip", file) or file.startswith(("<frozen", _LIBRARY))


_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - a prefix
