"""What a power cut may take back: Spark's notes of its newest batch, while segments, outputs and ledger are there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import append, checkpoint_of, outputs, prepare, results, run_here
from penstock.errors import CheckpointMismatchError


@pytest.fixture(scope="module")
def finished(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An application that has processed all there is; its last batch was smaller than it might have been."""
    root = tmp_path_factory.mktemp("finished")
    prepare(root)
    append(root, 60, 30)
    run_here(root, spark)
    return root


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "app"
    shutil.copytree(finished, copy, ignore=shutil.ignore_patterns("replicas"))
    return copy


def newest(root: Path, folder: str) -> Path:
    directory = checkpoint_of(root) / "spark" / folder
    return max((path for path in directory.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def test_a_lost_batch_that_is_planned_alike_is_done_already(root: Path, done: Any, spark: Any) -> None:
    for folder in ("offsets", "commits"):
        newest(root, folder).unlink()
    run_here(root, spark)
    assert results(root) == done


def test_a_lost_batch_that_is_planned_otherwise_stops_it(root: Path, spark: Any) -> None:
    before = outputs(root)
    for folder in ("offsets", "commits"):
        newest(root, folder).unlink()
    append(root, 90, 10)
    with pytest.raises(CheckpointMismatchError, match="but it has read other records than it is to read now") as caught:
        run_here(root, spark)
    assert caught.value.facts["batch"] == 4
    assert "brought back from an older copy" in str(caught.value.hint)
    assert outputs(root)["counts"] == before["counts"]


def test_notes_that_are_empty_are_removed(root: Path, done: Any, spark: Any) -> None:
    newest(root, "commits").write_bytes(b"")
    following = newest(root, "offsets")
    following.with_name(str(int(following.name) + 1)).write_bytes(b"")
    run_here(root, spark)
    assert results(root) == done
