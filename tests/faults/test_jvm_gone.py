"""Spark's JVM goes away under a running application: it fails and says so, rather than wait for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness import APP, environment, outputs, prepare

PATIENCE_S = 300


def start(root: Path) -> subprocess.Popen[str]:
    """The application with a process group of its own, once it has written all that there is."""
    prepare(root)
    process = subprocess.Popen(
        [sys.executable, str(APP), str(root), "local[2]", "stopped"],
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + PATIENCE_S
    while sum(sum(found.values()) for found in outputs(root)["counts"]) < 120:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    return process


@pytest.mark.parametrize("how", ["killed", "everything told to stop"])
def test_the_application_ends(how: str, tmp_path: Path) -> None:
    process = start(tmp_path)
    try:
        if how == "killed":
            for child in psutil.Process(process.pid).children():
                child.kill()
        else:  # as systemd and terminals do: JVM and driver at the same moment
            os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    if how == "killed":
        assert process.returncode == 1
        assert "AppFailedError" in said
        assert "Start the application again" in said
    else:
        assert process.returncode == 0, said
