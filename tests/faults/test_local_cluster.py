"""Two real executors: the same results as in one process, also when one of them is killed on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from eventually import eventually
from harness import APP, environment, prepare, results

PATIENCE_S = 300
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
        eventually(lambda: list(tmp_path.rglob("*.delta")), PATIENCE_S, facts=process.poll)
        executors(psutil.Process(process.pid))[0].kill()
    assert process.wait(PATIENCE_S) == 0
    assert results(tmp_path) == calm
