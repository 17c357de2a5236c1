"""Files that are lost, cut short or of somebody else: what can be rebuilt is, the rest is named and nothing written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fault_app import APPLICATION, settings
from harness import append, checkpoint_of, outputs, prepare, results, run_captured, run_here, segments
from penstock import KafkaStreams, Materialized, StreamsBuilder
from penstock.errors import CheckpointMismatchError, CorruptSegmentError, MissingSegmentError
from penstock.log.open import open_log


@pytest.fixture(scope="module")
def half_done(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An application that has processed 60 records a partition; take a copy."""
    root = tmp_path_factory.mktemp("half")
    prepare(root)
    run_here(root, spark)
    return root


@pytest.fixture
def root(half_done: Path, tmp_path: Path) -> Path:
    """A half-done application that has more to do. Its replicas are left out: those of another path do not count."""
    copy = tmp_path / "app"
    shutil.copytree(half_done, copy, ignore=shutil.ignore_patterns("replicas"))
    append(copy, 60, 30)
    return copy


def test_replicas_are_rebuilt(root: Path, done: Any, spark: Any) -> None:
    run_here(root, spark)
    shutil.rmtree(root / "state" / APPLICATION / "replicas")
    append(root, 90, 30)
    run_here(root, spark)
    longer = root.parent / "longer"
    longer.mkdir()
    prepare(longer)
    append(longer, 60, 60)
    run_here(longer, spark)
    assert results(root) == results(longer)


@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_committed_segment_stops_it_before_it_writes(which: int, root: Path, done: Any, spark: Any) -> None:
    before = outputs(root)
    files = {task: segments(root, task)[which] for task in ("1_0", "1_1")}
    whole = {task: file.read_bytes() for task, file in files.items()}
    for task, file in files.items():
        file.write_bytes(whole[task][:-40])
    with pytest.raises(CorruptSegmentError, match=r"\.delta is damaged: its checksum") as caught:
        run_here(root, spark)
    assert caught.value.facts["segment"] in map(str, files.values())
    assert "backup" in str(caught.value.hint)
    assert outputs(root)["counts"] == before["counts"]
    if which == 0:  # as seen from outside the process
        ended = run_captured(root)
        assert ended.returncode == 1
        assert "CorruptSegmentError" in ended.stderr
        assert "bring the file back from a backup" in ended.stderr
    for task, file in files.items():
        file.write_bytes(whole[task])
    run_here(root, spark)
    assert results(root) == done


def test_a_lost_committed_segment_stops_it(root: Path, done: Any, spark: Any) -> None:
    lost = segments(root, "1_0")[1]
    away = root / "away"
    lost.rename(away)
    with pytest.raises(MissingSegmentError, match=r"1\.delta"):
        run_here(root, spark)
    away.rename(lost)
    run_here(root, spark)
    assert results(root) == done


def test_a_damaged_segment_of_a_batch_that_was_not_committed_is_made_anew(root: Path, done: Any, spark: Any) -> None:
    run_here(root, spark)
    newest = segments(root, "1_0")[-1]
    _forget_commit(root, int(newest.stem))
    for task in ("0_0", "1_0", "1_1"):
        file = segments(root, task)[-1]
        file.write_bytes(file.read_bytes()[:100])
    run_here(root, spark)
    assert results(root) == done


def test_the_checkpoint_of_another_application(root: Path, spark: Any) -> None:
    with pytest.raises(CheckpointMismatchError, match="is of application 'faulty', not of 'other'") as caught:
        run_here(root, spark, **{"application.id": "other", "penstock.checkpoint.location": str(checkpoint_of(root))})
    assert "penstock.checkpoint.location" in str(caught.value.hint)


def test_the_checkpoint_of_another_topology(root: Path, done: Any, spark: Any) -> None:
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.group_by(lambda _, value: value).count(Materialized("numbers")).to_stream().to("counts")
    plan = (checkpoint_of(root) / "plan.json").read_bytes()
    with pytest.raises(CheckpointMismatchError, match="store 'counts' is gone"):
        KafkaStreams(builder.build(), settings(root), session=spark).run(until="latest")
    assert (checkpoint_of(root) / "plan.json").read_bytes() == plan
    run_here(root, spark)
    assert results(root) == done


def test_a_checkpoint_that_was_deleted(root: Path, spark: Any) -> None:
    before = outputs(root)
    shutil.rmtree(checkpoint_of(root))
    with pytest.raises(CheckpointMismatchError, match="has run before") as caught:
        run_here(root, spark)
    assert "penstock state rebuild" in str(caught.value.hint)
    assert "penstock app reset" in str(caught.value.hint)
    assert outputs(root) == before


def test_start_creates_the_dead_letter_topic(tmp_path: Path, spark: Any) -> None:
    prepare(tmp_path)
    run_here(tmp_path, spark, **{"errors.dead.letter.queue.topic.name": "letters", "num.partitions": 3})
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        assert log.topic("letters").partitions == 3


def _forget_commit(root: Path, batch: int) -> None:
    """As if the process had died after the batch was done, before Spark noted that."""
    for path in (checkpoint_of(root) / "spark" / "commits").iterdir():
        if path.name.strip(".").removesuffix(".crc") == str(batch):
            path.unlink()
