"""kill -9 at every step of the exactly-once protocol, and at any time: afterwards all is as in a calm run."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness import APP, environment, prepare, results, run, run_here, segments


def test_the_calm_run_counts_everything(calm: Any) -> None:
    outputs, stores = calm
    written = outputs["counts"][0] + outputs["counts"][1]
    assert sorted(written) == [(f"w{w}".encode(), n.to_bytes(8, "big")) for w in range(4) for n in range(1, 31)]
    assert set(written.values()) == {1}
    assert sorted(key for rows in stores.values() for key in rows) == [b"w0", b"w1", b"w2", b"w3"]


def _whole(*faults: str) -> list[Any]:
    return [pytest.param(fault, marks=pytest.mark.whole) for fault in faults]


@pytest.mark.parametrize(
    "fault", ["2:0:0_1", *_whole("0:1:0_0", "1:1:1_1", "2:1:1_0", "3:1:1_0", "4:1:0_1", "5:1:driver")]
)
def test_killed_at(fault: str, calm: Any, tmp_path: Path, spark: Any) -> None:
    prepare(tmp_path)
    assert run(tmp_path, fault) != 0, "the fault was not reached"
    if fault.endswith("driver"):  # its JVM and workers may live on for a moment, beside those of the next run
        assert run(tmp_path) == 0
    else:
        run_here(tmp_path, spark)
    assert results(tmp_path) == calm


@pytest.mark.whole
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_time(seed: int, calm: Any, tmp_path: Path) -> None:
    """Only the driver dies; its JVM and workers find out by themselves, while the next run is starting already."""
    prepare(tmp_path)
    process = subprocess.Popen(
        [sys.executable, str(APP), str(tmp_path), "local[2]"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not segments(tmp_path, "0_0") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.Random(seed).uniform(0, 1.5))
    process.kill()
    process.wait()
    assert run(tmp_path) == 0
    assert results(tmp_path) == calm
