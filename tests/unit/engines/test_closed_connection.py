"""A worker whose connection Spark has closed ends without a word; with an open one it tells Spark what went wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest

WORKER = """
import socket, sys
from penstock.engines.spark.worker_process import prepare_worker
from pyspark import worker

here, there = socket.socketpair()
outfile = here.makefile("wb")
prepare_worker()
if sys.argv[1] == "closed":
    there.close()
try:
    raise EOFError("gone")
except EOFError as error:
    worker.handle_worker_exception(error, outfile)
print("told", there.recv(4) == (2**32 - 2).to_bytes(4, "big"))
"""


@pytest.mark.parametrize(("connection", "said"), [("closed", ""), ("open", "told True\n")])
def test_a_worker_and_its_connection(connection: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORKER, connection], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (said, "")
