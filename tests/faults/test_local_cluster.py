"""Two real executors: the same results as in one process, also when one of them is killed on the way."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from test_kill_at_each_step import APP, prepare, results

pytestmark = [pytest.mark.spark, pytest.mark.faults]
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


@pytest.mark.parametrize("kill", [False, True])
def test_two_executors(kill: bool, tmp_path: Path) -> None:
    roots = [tmp_path / "calm", tmp_path / "cluster"]
    for root in roots:
        root.mkdir()
        prepare(root)
    subprocess.run([sys.executable, str(APP), str(roots[0]), "local[2]"], check=True, capture_output=True, timeout=180)
    process = subprocess.Popen(
        [sys.executable, str(APP), str(roots[1]), CLUSTER], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    if kill:
        deadline = time.monotonic() + 60
        while not list(roots[1].rglob("*.delta")) and time.monotonic() < deadline:
            time.sleep(0.05)
        executors(psutil.Process(process.pid))[0].kill()
    assert process.wait(180) == 0
    assert results(roots[1]) == results(roots[0])
