"""Stack traces of connections that Spark has closed are left out of what its processes say; all others are not."""

from __future__ import annotations

import os
from itertools import combinations

import pytest

from penstock.engines.spark.jvm import without_stray_traces

LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120
IDLE = b"""Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/venv/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""
STARTING = f"""Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/util.py", line 822, in local_connect
FileNotFoundError: [Errno 2] No such file or directory

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "{LIBRARY}/contextlib.py", line 137, in __enter__
    return next(self.gen)
           ^^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/util.py", line 828, in local_connect
pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: tried to connect to /run/x

""".encode()
USERS = b"""Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 1, in main
  File "/home/user/app.py", line 3, in send
BrokenPipeError: [Errno 32] Broken pipe
"""
OTHER = b"""Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 1, in main
MemoryError
"""


def _through(text: bytes) -> bytes:
    return b"".join(without_stray_traces(text.splitlines(keepends=True)))


@pytest.mark.parametrize("stray", [IDLE, STARTING, IDLE + IDLE, STARTING + IDLE, IDLE + STARTING])
def test_stray_traces_are_left_out_and_nothing_around_them(stray: bytes) -> None:
    assert _through(b"a word\n" + stray + b"another word\n") == b"a word\nanother word\n"
    assert _through(stray) == b""


@pytest.mark.parametrize("trace", [USERS, OTHER, STARTING[: STARTING.index(b"\nDuring")]])
def test_other_traces_stay(trace: bytes) -> None:
    assert _through(IDLE + trace + b"a word\n" + STARTING) == trace + b"a word\n"


def test_a_heading_goes_with_its_trace_and_bytes_that_are_no_text_pass() -> None:
    heading = b"PySpark daemon failed to flush the output to the worker process:\n"
    assert _through(heading + IDLE + b"\xff\xfe\n") == b"\xff\xfe\n"
    assert _through(b"WARNING: Using incubator modules: jdk.incubator.vector\nWARNING: low\n") == b"WARNING: low\n"


def test_lines_of_two_processes_that_lose_their_connections_at_once_mix() -> None:
    code = b"    outfile.flush()\n"
    trace = IDLE.replace(b"BrokenPipe", code + b"BrokenPipe").splitlines(keepends=True)
    for places in combinations(range(2 * len(trace)), len(trace)):
        one, other = iter(trace), iter(trace)
        mixed = b"".join(next(one if at in places else other) for at in range(2 * len(trace)))
        assert _through(b"a word\n" + mixed + b"another word\n" + USERS) == b"a word\nanother word\n" + USERS, mixed
        assert _through(mixed + USERS) == USERS
        assert _through(mixed + b"    a word behind both\n") == b"    a word behind both\n"
