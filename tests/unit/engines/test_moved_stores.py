"""Two sub-topologies become one, and part again: their stores go on where they lie then; without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from upgrade_support import commit, lose_segments, stop
from worker_support import ROWS, append, loaded, prepared, run, written

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.micro_batches import engine
from penstock.engines.micro_batches.recovery import moved_stores
from penstock.engines.micro_batches.recovery.lost_checkpoint import lost_checkpoint_of
from penstock.engines.micro_batches.recovery.rebuild import rebuilder_for
from penstock.engines.micro_batches.worker import open_tasks
from penstock.errors import CheckpointMismatchError, FencedError, MissingSegmentError
from penstock.log.open import open_log
from penstock.state.checkpoint import write_document
from penstock.topology.plan.internal_topics import numbers_topic

TOPICS = ["words", "names", "word-counts", "name-counts", "both", "words-again"]


def topology(*, joined: bool, counts_words: bool = True) -> Any:
    builder = StreamsBuilder()
    names = builder.stream("names").group_by_key().count(Materialized("names"))
    names.to_stream().to("name-counts")
    if not counts_words:
        builder.stream("words").to("words-again")
        return builder.build()
    words = builder.stream("words").group_by_key().count(Materialized("words"))
    words.to_stream().to("word-counts")
    if joined:
        words.join(names, lambda word, name: f"{word} {name}").to_stream().to("both")
    return builder.build()


@pytest.fixture(autouse=True)
def _no_open_tasks() -> Iterator[None]:
    yield
    open_tasks.close_open_tasks()


def start(
    root: Path, batches: dict[int, str], *, joined: bool, counts_words: bool = True, **settings: Any
) -> tuple[bytes, StreamsConfig]:
    """A start that runs these batches, each of records of one topic."""
    with prepared(root, topology(joined=joined, counts_words=counts_words), TOPICS, **settings) as (data, log):
        if not log.end_offset("words", 0):
            for topic in ("words", "names"):
                append(log, topic, [("k", "v") for _ in range(10 * ROWS)])
        for batch, topic in batches.items():
            run(data, batch, topic)
            commit(loaded(data), log, batch, topic)
    open_tasks.close_open_tasks()
    return data, loaded(data).config


def last(data: bytes, topic: str) -> int:
    return int.from_bytes(written(data, topic)[-1][1], "big")


def test_they_come_together_and_part_with_what_they_held(tmp_path: Path) -> None:
    start(tmp_path, {0: "words", 1: "names", 2: "words"}, joined=False)
    data, _ = start(tmp_path, {3: "names"}, joined=True)
    assert [sub.id for sub in loaded(data).plan.subtopologies] == [2]
    assert last(data, "name-counts") == 2 * ROWS
    assert written(data, "both")[-1][1].decode() == f"{2 * ROWS} {2 * ROWS}"
    data, _ = start(tmp_path, {4: "words", 5: "names"}, joined=False)
    assert sorted(sub.id for sub in loaded(data).plan.subtopologies) == [2, 3]
    assert (last(data, "word-counts"), last(data, "name-counts")) == (3 * ROWS, 3 * ROWS)


def test_a_start_that_was_cut_off_while_it_copied_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(tmp_path, {0: "words", 1: "names"}, joined=False)

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "write_stored_plan", cut_off)
        with pytest.raises(KeyboardInterrupt):
            start(tmp_path, {}, joined=True)
    start(tmp_path, {2: "words"}, joined=False)  # back to the version before
    data, _ = start(tmp_path, {3: "words"}, joined=True)
    assert [sub.id for sub in loaded(data).plan.subtopologies] == [3]  # what lies under 2 is of a start that was not
    assert last(data, "word-counts") == 3 * ROWS
    assert written(data, "both")[-1][1].decode() == f"{3 * ROWS} {ROWS}"


def test_a_batch_under_way_is_finished_first(tmp_path: Path) -> None:
    data, _ = start(tmp_path, {0: "words", 1: "names"}, joined=False)
    write_document(loaded(data).checkpoint, "spark/offsets/2", "v1\n{}\n{}")
    with pytest.raises(CheckpointMismatchError, match="batch 2 was under way") as caught:
        start(tmp_path, {}, joined=True)
    assert "Start the version that ran last once more" in str(caught.value.hint)
    write_document(loaded(data).checkpoint, "spark/commits/2", "\0\0")  # as a power cut leaves it
    with pytest.raises(CheckpointMismatchError, match="batch 2 was under way"):
        start(tmp_path, {}, joined=True)


def test_a_store_that_was_taken_out_is_put_back_beside_others(tmp_path: Path) -> None:
    start(tmp_path, {0: "words", 1: "names"}, joined=False)
    drop = {"penstock.state.drop": "words"}
    start(tmp_path, {2: "words"}, joined=False, counts_words=False, **drop)
    data, _ = start(tmp_path, {3: "words"}, joined=True)
    assert written(data, "both")[-1][1].decode() == f"{2 * ROWS} {ROWS}"


def test_stores_whose_segments_are_lost_are_not_moved(tmp_path: Path) -> None:
    data, config = start(tmp_path, {0: "words", 1: "names"}, joined=False)
    lose_segments(data, tmp_path)
    with pytest.raises(MissingSegmentError, match="stores of task 0_0 cannot be copied"):
        start(tmp_path, {}, joined=True)
    stop(config)
    with pytest.raises(CheckpointMismatchError, match="names, words have come into another sub-topology"):
        rebuilder_for(topology(joined=True), config).__enter__()
    with rebuilder_for(topology(joined=False), config) as rebuilder:
        assert {rebuilder.rebuild(*task).outcome for task in rebuilder.tasks()} == {"rebuilt"}
    data, _ = start(tmp_path, {2: "words"}, joined=True)
    assert written(data, "both")[-1][1].decode() == f"{2 * ROWS} {ROWS}"


def test_after_a_move_segments_and_checkpoint_can_be_made_anew(tmp_path: Path) -> None:
    start(tmp_path, {0: "words", 1: "names"}, joined=False)
    data, config = start(tmp_path, {}, joined=True)
    lose_segments(data, tmp_path)
    stop(config)
    with rebuilder_for(topology(joined=True), config) as rebuilder:
        (report,) = [rebuilder.rebuild(*task) for task in rebuilder.tasks()]
    assert (report.outcome, report.rows) == ("rebuilt", {"words": 1, "names": 1})
    shutil.rmtree(tmp_path / "state")
    with lost_checkpoint_of(topology(joined=True), config) as lost:
        (report,) = lost.make()
    assert (report.outcome, report.rows) == ("rebuilt", {"words": 1, "names": 1})
    data, _ = start(tmp_path, {2: "words"}, joined=True)
    assert written(data, "both")[-1][1].decode() == f"{2 * ROWS} {ROWS}"


def test_a_start_whose_lease_was_taken_notes_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has copied a store when another one takes over: what that one notes later is not to be followed by its note."""
    _, config = start(tmp_path, {0: "words", 1: "names"}, joined=False)
    numbers = numbers_topic("app")

    def ends() -> int:
        with open_log(config["bootstrap.servers"]) as log:
            return log.end_offset(numbers, 0)

    before = ends()
    write_snapshot = moved_stores.write_snapshot

    def taken_over(*arguments: Any) -> Any:
        written = write_snapshot(*arguments)
        stop(config)
        return written

    monkeypatch.setattr(moved_stores, "write_snapshot", taken_over)
    with pytest.raises(FencedError, match="epoch"):
        start(tmp_path, {}, joined=True)
    assert ends() == before
