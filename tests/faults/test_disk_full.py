"""A disk that fills up: an error with a remedy, nothing half-written, and after more room it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import append, outputs, prepare, results, run_here, segments, unfinished
from penstock.errors import LogError, PenstockError, StateError
from penstock.log.open import open_log
from penstock.state.segments.segment import unpack
from small_disk import fill, small_disk

__all__ = ["small_disk"]


@pytest.mark.parametrize("room", [0, 16 << 10, 64 << 10])
def test_the_disk_of_the_state_is_full(room: int, small_disk: Path, tmp_path: Path, done: Any, spark: Any) -> None:
    (tmp_path / "state").symlink_to(small_disk, target_is_directory=True)
    prepare(tmp_path)
    run_here(tmp_path, spark)
    append(tmp_path, 60, 30)
    before = outputs(tmp_path)
    filler = fill(small_disk, room)
    with pytest.raises(PenstockError) as caught:
        run_here(tmp_path, spark)
    assert isinstance(caught.value, StateError)
    assert "ree space there" in str(caught.value.hint)
    assert not unfinished(tmp_path)
    for task in ("0_0", "0_1", "1_0", "1_1"):
        for file in segments(tmp_path, task):
            unpack(file.read_bytes(), str(file))
    after = outputs(tmp_path)
    assert all(not old - new for topic in before for old, new in zip(before[topic], after[topic], strict=True))
    filler.unlink()
    run_here(tmp_path, spark)
    assert results(tmp_path) == done


def test_the_disk_of_the_log_is_full(small_disk: Path, tmp_path: Path, done: Any, spark: Any) -> None:
    place = {"state.dir": str(tmp_path / "state")}
    prepare(small_disk)
    run_here(small_disk, spark, **place)
    append(small_disk, 60, 30)
    before = outputs(small_disk)
    with open_log(f"sqlite:///{small_disk / 'log.db'}") as log:  # makes the log's files as large as they get
        log.clean()
    filler = fill(small_disk, 0)
    with pytest.raises(LogError, match="the disk is full") as caught:
        run_here(small_disk, spark, **place)
    assert "free disk space" in str(caught.value.hint)
    assert outputs(small_disk) == before
    filler.unlink()
    run_here(small_disk, spark, **place)
    (small_disk / "state").symlink_to(tmp_path / "state", target_is_directory=True)
    assert results(small_disk) == done
