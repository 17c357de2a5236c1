"""Spark's own checkpoint and its copy in an object store: what a driver on another machine begins with."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from penstock.engines.micro_batches.object_store import CheckpointCopy
from penstock.errors import FencedError
from penstock.state.checkpoint import list_documents, read_document

_names = itertools.count()


class Driver:
    """A machine with a directory of its own; `plan` and `commit` write as Spark does."""

    def __init__(self, directory: Path, checkpoint: str) -> None:
        self.directory = directory
        self.journal = CheckpointCopy(str(directory), checkpoint)
        self.journal.fetch()

    def plan(self, batch: int, what: str = "") -> None:
        (self.directory / "offsets" / str(batch)).write_text(what or f"v1\n{{}}\n{batch}")
        (self.directory / "offsets" / f".{batch}.tmp").write_text("half")
        self.journal.push()

    def commit(self, batch: int) -> None:
        (self.directory / "commits" / str(batch)).write_text("v1\n{}")

    def has(self, folder: str) -> list[str]:
        return sorted(path.name for path in (self.directory / folder).iterdir())


@pytest.fixture
def checkpoint() -> str:
    return f"memory://journal-{next(_names)}/app"


def test_another_machine_goes_on_with_the_batch_that_was_planned(tmp_path: Path, checkpoint: str) -> None:
    first = Driver(tmp_path / "first", checkpoint)
    (first.directory / "metadata").write_text("id")
    for batch in range(3):
        first.plan(batch)
        first.commit(batch)
    first.plan(3)
    second = Driver(tmp_path / "second", checkpoint)
    assert (second.has("offsets"), second.has("commits")) == (["2", "3"], ["2"])
    assert (second.directory / "offsets" / "3").read_text() == "v1\n{}\n3"
    assert (second.directory / "metadata").read_text() == "id"
    second.commit(3)
    second.plan(4)  # batch 3 was done before 4 was planned
    assert Driver(tmp_path / "third", checkpoint).has("commits") == ["3"]


def test_what_was_not_copied_has_run_nowhere_and_is_planned_anew(tmp_path: Path, checkpoint: str) -> None:
    first = Driver(tmp_path / "first", checkpoint)
    first.plan(0)
    first.commit(0)
    (first.directory / "offsets" / "1").write_text("never copied")
    again = Driver(tmp_path / "first", checkpoint)
    assert (again.has("offsets"), again.has("commits")) == (["0"], [])
    again.commit(0)
    again.plan(1)
    assert read_document(checkpoint, "spark/offsets/1") == "v1\n{}\n1"


def test_a_batch_that_another_instance_has_planned_is_not_planned_again(tmp_path: Path, checkpoint: str) -> None:
    first, second = Driver(tmp_path / "first", checkpoint), Driver(tmp_path / "second", checkpoint)
    first.plan(0, "theirs")
    with pytest.raises(FencedError, match="batch 0 is planned"):
        second.plan(0, "ours")
    assert read_document(checkpoint, "spark/offsets/0") == "theirs"
    Driver(tmp_path / "third", checkpoint).journal.push()  # the same is not another


def test_old_batches_are_forgotten(tmp_path: Path, checkpoint: str) -> None:
    driver = Driver(tmp_path / "first", checkpoint)
    for batch in range(5):
        driver.plan(batch)
        driver.commit(batch)
    later = Driver(tmp_path / "second", checkpoint)
    later.plan(103)
    assert list_documents(checkpoint, "spark/offsets") == ["103", "3", "4"]
    assert list_documents(checkpoint, "spark/commits") == ["3"]
