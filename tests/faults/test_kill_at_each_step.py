"""kill -9 at every step of the exactly-once protocol; afterwards everything is as in a calm run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log.open import open_log

pytestmark = [pytest.mark.spark, pytest.mark.faults]
APP = Path(__file__).with_name("fault_app.py")
START = 1_790_000_000_000


def prepare(root: Path) -> None:
    with open_log(f"sqlite:///{root / 'log.db'}") as log:
        for topic in ("words", "counts", "upper"):
            log.create_topic(topic, 2)
        for partition in range(2):
            columns = {
                "timestamp": pa.array([START + i for i in range(60)], pa.int64()),
                "key": pa.array([str(i).encode() for i in range(60)], pa.large_binary()),
                "value": pa.array([f"w{(i + partition) % 4}".encode() for i in range(60)], pa.large_binary()),
            }
            log.append("words", partition, pa.RecordBatch.from_pydict(columns))


def run(root: Path, fault: str = "", master: str = "local[2]") -> int:
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_FAULT"}
    if fault:
        environment["PENSTOCK_FAULT"] = fault
    command = [sys.executable, str(APP), str(root), master]
    return subprocess.run(command, env=environment, capture_output=True, timeout=180, check=False).returncode


def results(root: Path) -> dict[str, list[Counter[tuple[bytes, bytes]]]]:
    """What the output topics hold, by partition; every count must have been written exactly once."""
    found: dict[str, list[Counter[tuple[bytes, bytes]]]] = {}
    with open_log(f"sqlite:///{root / 'log.db'}") as log:
        for topic in ("counts", "upper"):
            for partition in range(2):
                rows = log.read(topic, partition, 0, 100_000).records
                pairs = zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)
                found.setdefault(topic, []).append(Counter(pairs))
        assert log.committed_offsets("faulty") == log.end_offsets(["words"])
    return found


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Counter[tuple[bytes, bytes]]]]:
    root = tmp_path_factory.mktemp("calm")
    prepare(root)
    assert run(root) == 0
    return results(root)


def test_the_calm_run_counts_everything(calm) -> None:
    written = calm["counts"][0] + calm["counts"][1]
    assert sorted(written) == [(f"w{w}".encode(), n.to_bytes(8, "big")) for w in range(4) for n in range(1, 31)]
    assert set(written.values()) == {1}


@pytest.mark.parametrize("fault", ["0:1:0_0", "1:1:1_1", "2:0:0_1", "2:1:1_0", "3:1:1_0", "4:1:0_1", "5:1:driver"])
def test_killed_at(fault: str, calm, tmp_path: Path) -> None:
    prepare(tmp_path)
    assert run(tmp_path, fault) != 0, "the fault was not reached"
    assert run(tmp_path) == 0
    assert results(tmp_path) == calm
