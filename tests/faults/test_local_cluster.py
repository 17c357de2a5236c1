"""Two real executors: the same results as in one process, also when one of them is killed on the way."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness import APP, environment, prepare, results

CLUSTER = "local-cluster[2,1,1024]"


def executors(root: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in root.children(recursive=True):
        try:
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.whole), True])
def test_two_executors(kill: bool, calm: Any, tmp_path: Path) -> None:
    prepare(tmp_path)
    process = subprocess.Popen(
        [sys.executable, str(APP), str(tmp_path), CLUSTER],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if kill:
        deadline = time.monotonic() + 60
        while not list(tmp_path.rglob("*.delta")) and time.monotonic() < deadline:
            time.sleep(0.05)
        executors(psutil.Process(process.pid))[0].kill()
    assert process.wait(180) == 0
    assert results(tmp_path) == calm
