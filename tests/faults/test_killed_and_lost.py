"""kill -9 inside a batch, and the checkpoint is gone with it: afterwards all is as in a calm run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from fault_app import settings, topology
from harness import prepare, results, run, run_here
from penstock.config import StreamsConfig
from penstock.engines.micro_batches.recovery.lost_checkpoint import lost_checkpoint_of


def _is_gone(folder: Path) -> bool:
    """Delete a folder in which processes may still write that notice the driver's death a moment later."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@pytest.mark.parametrize(
    "fault",
    [
        "2:0:0_1",
        *(pytest.param(each, marks=pytest.mark.whole) for each in ("1:1:1_1", "3:1:0_0", "3:1:1_0", "5:1:driver")),
    ],
)
def test_killed_and_lost_at(fault: str, calm: Any, tmp_path: Path, spark: Any) -> None:
    prepare(tmp_path)
    assert run(tmp_path, fault) != 0, "the fault was not reached"
    eventually(lambda: _is_gone(tmp_path / "state"))
    with lost_checkpoint_of(topology(), StreamsConfig(settings(tmp_path))) as lost:
        lost.make()
    run_here(tmp_path, spark)
    assert results(tmp_path) == calm
