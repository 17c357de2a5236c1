"""What has happened to an application's changelogs and group while it was stopped, found at its start; without Spark."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from worker_support import ROWS, append, loaded, prepared, run

from group_offsets import set_offsets
from penstock import Grouped, Materialized, StreamsBuilder
from penstock.engines.application.planning import PlannedApp
from penstock.engines.micro_batches.engine import prepare_job
from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
from penstock.engines.micro_batches.takeovers import check_changelog_ends, check_group, note_changelog_ends
from penstock.engines.micro_batches.worker import open_tasks
from penstock.engines.micro_batches.worker.task_attempt import run_task
from penstock.engines.micro_batches.worker.task_batch import TaskBatch
from penstock.engines.offsets.offsets import SourceOffset
from penstock.errors import CheckpointMismatchError
from penstock.log.base import TopicPartition
from penstock.state.checkpoint import write_document
from penstock.topology.plan.plan import TaskRun

LOGGED = "app-counts-changelog"


WORDS = TopicPartition("words", 0)


def topology() -> Any:
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(Materialized("counts")).to_stream().to("counts")
    return builder.build()


@pytest.fixture
def app(tmp_path):
    with prepared(tmp_path, topology(), ["words", "counts"]) as (data, log):
        append(log, "words", [(f"w{i % 3}", "v") for i in range(10 * ROWS)])
        yield data, log, loaded(data)
    open_tasks.close_open_tasks()


def check(log, job, *, loss_fails=True):
    config = job.config.with_settings({"penstock.data.loss": "fail" if loss_fails else "continue"})
    return check_changelog_ends(PlannedApp(job.topology, config, job.plan, log))


def foreign(log, key, value):
    append(log, LOGGED, [(key, value)])


def test_its_own_records_are_no_takeover_even_if_a_crash_kept_them_from_being_noted(app):
    data, log, job = app
    for batch in range(3):
        run(data, batch)
    assert check(log, job) == frozenset()  # noted at the start, three batches ago
    note_changelog_ends(job.checkpoint, log, [LOGGED], 2)
    run(data, 3)
    assert check(log, job) == frozenset()
    assert log.end_offset(LOGGED, 0) == 4 * 3


@pytest.mark.parametrize("noted", [True, False])
def test_another_program_that_has_gone_on_is_never_mixed_with(app, noted):
    data, log, job = app
    run(data, 0)
    if noted:
        note_changelog_ends(job.checkpoint, log, [LOGGED], 0)
    foreign(log, "w0", "from Java")
    with pytest.raises(
        CheckpointMismatchError, match=f"another program .*{LOGGED}-0 has records.* that this application"
    ):
        prepare(log, job)  # the group is where it was
    assert find(job, 0)


def cut_off(*_):
    raise OSError("power cut")


def count_of(number):
    return number.to_bytes(8, "big").decode("latin-1")


def test_what_another_program_has_done_is_taken_up_from_changelogs_and_group(app, caplog):
    data, log, job = app
    run(data, 0)
    run(data, 1)
    foreign(log, "w0", count_of(70))
    foreign(log, "new", count_of(1))
    set_offsets(log, {WORDS: 50})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.engines.micro_batches.recovery.lost_checkpoint.write_stored_plan", cut_off)
        with pytest.raises(OSError, match="power cut"):
            prepare(log, job)
    open_tasks.close_open_tasks()
    with caplog.at_level(logging.WARNING):
        again = prepare(log, job)
    assert "another program has continued app: the old state is discarded" in caplog.text
    assert log.group_offsets("app")[WORDS].metadata.startswith("penstock batch")
    batch = max(int(path.name) for path in Path(job.checkpoint, "spark/offsets").iterdir())
    ends = Path(job.checkpoint, f"spark/offsets/{batch}").read_text().splitlines()[2]
    assert json.loads(ends)["topics"] == {"words": {"0": 50}}
    inputs = [Envelope(0, 0, EnvelopeKind.RANGE, "0_0_0", "words", 0, "", b"[50, 60]")]
    run_task(TaskBatch(loaded(again.dump()), 0, TaskRun(0, 0), batch + 1, inputs))
    records = log.read(LOGGED, 0, 0, 10_000).records.to_pylist()
    newest = {each["key"]: int.from_bytes(each["value"], "big") for each in records}
    assert newest == {b"w0": 73, b"w1": 7 + 3, b"w2": 6 + 4, b"new": 1}
    assert check(log, loaded(again.dump())) == frozenset()


def test_what_another_program_has_not_read_of_its_repartition_topic_is_refused(tmp_path):
    builder = StreamsBuilder()
    builder.stream("words").group_by(lambda _, word: word, Grouped("by-word")).count(Materialized("counts"))
    with prepared(tmp_path, builder.build(), ["words"]) as (data, log):
        job = loaded(data)
        log.create_topic("app-by-word-repartition", 1)
        for topic in (LOGGED, "app-by-word-repartition"):
            append(log, topic, [("w0", count_of(1))])
        set_offsets(log, {WORDS: 50})
        with pytest.raises(CheckpointMismatchError, match=r"1 records of app-by-word-repartition-0 wait for it"):
            prepare(log, job)
        set_offsets(log, {TopicPartition("app-by-word-repartition", 0): 1})
        prepare(log, job)
    open_tasks.close_open_tasks()


def test_after_a_reset_by_a_tool_of_kafkas_it_begins_where_the_group_is_with_nothing(app, caplog):
    data, log, job = app
    run(data, 0)
    for topic in (LOGGED, "app-penstock-numbers-changelog"):
        log.delete_topic(topic)
    set_offsets(log, {WORDS: 10}, "penstock batch 0")
    with pytest.raises(CheckpointMismatchError, match="deleted, or made again"):
        prepare(log, job)  # the group is where it was
    set_offsets(log, {WORDS: 0})
    open_tasks.close_open_tasks()
    with caplog.at_level(logging.WARNING):
        again = prepare(log, job)
    assert "app was reset by another tool" in caplog.text
    assert [move.offsets for move in again.group_resets] == [{WORDS: 0}]
    assert (log.ledger("app"), find(job, 0)) == ({}, [])
    run(again.dump(), 0)
    assert log.end_offset(LOGGED, 0) == 3


def find(job, task):
    folder = Path(job.checkpoint, "state", f"{task}_0")
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def prepare(log, job):
    lease = log.acquire_lease("app", "test", 600_000, force=True)
    return prepare_job(PlannedApp(job.topology, job.config, job.plan, log), lease, parallelism=2, until_latest=False)


def test_a_move_of_the_group_alone_is_an_operators(app):
    data, log, job = app
    run(data, 0)
    set_offsets(log, {TopicPartition("words", 0): 3})
    assert [move.offsets for move in prepare(log, job).group_resets] == [{TopicPartition("words", 0): 3}]


@pytest.mark.parametrize("again", [True, False])
def test_a_changelog_that_was_deleted_is_not_gone_on_with(app, again, caplog):
    data, log, job = app
    run(data, 0)
    log.delete_topic(LOGGED)
    if again:
        log.create_topic(LOGGED, 1)
        foreign(log, "w0", "from Java")
    with pytest.raises(CheckpointMismatchError, match=f"{LOGGED}: deleted, or made again"):
        prepare(log, job)
    with caplog.at_level(logging.WARNING):
        assert check(log, job, loss_fails=False) == {LOGGED}
    assert "is not in it" in caplog.text


def test_where_no_segment_can_tell_the_group_does(app):
    data, log, job = app
    run(data, 0)
    shutil.rmtree(f"{job.checkpoint}/state")
    foreign(log, "w0", "from Java")
    assert check(log, job) == frozenset()  # the lost segments are what the start will complain of
    set_offsets(log, {TopicPartition("words", 0): 50})
    with pytest.raises(CheckpointMismatchError, match="another program has continued"):
        check(log, job)


def test_an_older_copy_of_a_checkpoint_is_refused(app):
    data, log, job = app
    run(data, 0)
    place = TopicPartition("words", 0)

    def planned(batch, end):
        text = f"v1\n{{}}\n{json.dumps(SourceOffset({place: end}).to_json())}"
        write_document(job.checkpoint, f"spark/offsets/{batch}", text)

    planned(4, 50)
    set_offsets(log, {place: 50}, "penstock batch 4")
    check_group(job.checkpoint, log, "app")
    set_offsets(log, {place: 50}, "penstock batch 5")  # there was nothing to do
    check_group(job.checkpoint, log, "app")
    planned(5, 60)  # and then there was, up to a crash
    check_group(job.checkpoint, log, "app")
    Path(job.checkpoint, "spark/offsets/5").unlink()
    set_offsets(log, {place: 55}, "penstock batch 5")  # a power cut took its note: its checksum will decide
    check_group(job.checkpoint, log, "app")
    set_offsets(log, {place: 40}, "penstock batch 4")
    with pytest.raises(CheckpointMismatchError, match="offset 40 of words-0 by the group, and at 50"):
        check_group(job.checkpoint, log, "app")
    set_offsets(log, {place: 90}, "penstock batch 9")
    with pytest.raises(CheckpointMismatchError, match=r"the group is at batch 9, .* at batch 4"):
        check_group(job.checkpoint, log, "app")
