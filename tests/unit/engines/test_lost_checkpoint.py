"""A checkpoint that is gone as a whole, made anew from the log; without Spark, whose part is an integration test."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from worker_support import ROWS, append, loaded, prepared, run, written

from group_offsets import set_offsets
from penstock import Grouped, Materialized, StreamsBuilder
from penstock.engines.application.planning import PlannedApp
from penstock.engines.micro_batches.engine import prepare_job
from penstock.engines.micro_batches.planned_batch import PlannedBatch
from penstock.engines.micro_batches.recovery.lost_checkpoint import LostCheckpoint
from penstock.engines.micro_batches.worker import open_tasks
from penstock.engines.offsets.offsets import SourceOffset
from penstock.errors import CheckpointMismatchError, StateError
from penstock.log.base import TopicPartition

WORDS = TopicPartition("words", 0)


def topology(name: str = "counts") -> Any:
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(Materialized(name)).to_stream().to("counts")
    return builder.build()


@pytest.fixture
def app(tmp_path):
    """An application that has run three batches and lost its checkpoint."""
    with prepared(tmp_path, topology(), ["words", "counts"]) as (data, log):
        append(log, "words", [(f"w{i % 3}", "v") for i in range(10 * ROWS)])
        for batch in range(3):
            run(data, batch)
        open_tasks.close_open_tasks()
        shutil.rmtree(tmp_path / "state")
        yield data, log, loaded(data)
    open_tasks.close_open_tasks()


def commit(log, batch):
    set_offsets(log, {WORDS: (batch + 1) * ROWS}, f"penstock batch {batch}")


def prepare(log, job):
    lease = log.acquire_lease("app", "test", 600_000, force=True)
    return prepare_job(PlannedApp(job.topology, job.config, job.plan, log), lease, parallelism=2, until_latest=False)


def test_it_goes_on_where_it_was_and_counts_nothing_twice(app):
    _, log, job = app
    commit(log, 2)
    with pytest.raises(CheckpointMismatchError, match="--without-checkpoint"):
        prepare(log, job)
    lost = LostCheckpoint(job.topology, job.config, log)
    assert [report.outcome for report in lost.make(dry_run=True)] == ["would be rebuilt"]
    assert not Path(job.checkpoint, "plan.json").exists()
    assert [(report.outcome, report.rows) for report in lost.make()] == [("rebuilt", {"counts": 3})]
    again = prepare(log, job).dump()
    run(again, 3)
    assert {key: int.from_bytes(value, "big") for key, value in written(again, "counts")} == {
        "w0": 14,
        "w1": 13,
        "w2": 13,
    }
    assert len(written(again, "counts")) == 4 * 3
    with pytest.raises(CheckpointMismatchError, match="is there"):
        lost.make()


@pytest.mark.parametrize(
    ("offsets", "why"),
    [
        ([(30, "")], "another program has set offsets"),
        ([(20, "penstock batch 1")], r"batch 2 was under way .* \(its group is at batch 1\), and only the checkpoint"),
        ([], r"batch 2 was under way .* \(its group is at batch -1\)"),
    ],
)
def test_what_would_be_lost_or_doubled_is_refused(app, offsets, why):
    _, log, job = app
    for offset, mark in offsets:
        set_offsets(log, {WORDS: offset}, mark)
    with pytest.raises(CheckpointMismatchError, match=why):
        LostCheckpoint(job.topology, job.config, log).make()
    assert not Path(job.checkpoint).exists()


def plan(log, batch, *, rows=ROWS):
    """Notes a batch as planned, as the planner does."""
    ids = log.topic_ids(["words"])
    before, end = (SourceOffset({WORDS: n}, ids=ids) for n in (batch * ROWS, batch * ROWS + rows))
    planned = PlannedBatch(batch, before, end)
    log.note_planned("app", 1, planned.pack())
    return planned


def test_a_batch_under_way_is_run_again_as_it_was_planned(app):
    _, log, job = app
    commit(log, 1)
    planned = plan(log, 2)
    lost = LostCheckpoint(job.topology, job.config, log)
    assert [(report.outcome, report.batch) for report in lost.make()] == [("rebuilt", 2)]
    noted = {path.name for path in Path(job.checkpoint, "spark/offsets").iterdir()}
    assert noted == {"1", "2"}
    assert {path.name for path in Path(job.checkpoint, "spark/commits").iterdir()} == {"1"}
    assert planned.end.to_json() == json.loads(Path(job.checkpoint, "spark/offsets/2").read_text().splitlines()[2])
    again = prepare(log, job).dump()
    run(again, 2)  # it had written it
    assert len(written(again, "counts")) == 3 * 3
    run(again, 3)
    assert sorted(int.from_bytes(value, "big") for _, value in written(again, "counts")[9:]) == [13, 13, 14]


def test_a_note_of_other_ranges_than_those_that_were_written_is_refused(app):
    _, log, job = app
    commit(log, 1)
    plan(log, 1)
    with pytest.raises(CheckpointMismatchError, match="batch 2 was begun, but batch 1 is the last whose ranges"):
        LostCheckpoint(job.topology, job.config, log).make()
    with log.transaction("app-0_0") as transaction:
        transaction.put_ledger("app", "0_0", 3, "f00d")
    plan(log, 3)
    with pytest.raises(CheckpointMismatchError, match="task 0_0 has written batch 3 with other records"):
        LostCheckpoint(job.topology, job.config, log).make()
    assert not Path(job.checkpoint).exists()


def test_what_a_task_with_stores_had_for_others_is_lost_only_on_purpose(tmp_path):
    builder = StreamsBuilder()
    counts = builder.stream("words").group_by_key().count(Materialized("counts")).to_stream()
    counts.group_by(lambda _, count: str(count), Grouped(value_serde="long")).count(Materialized("of-counts"))
    with prepared(tmp_path, builder.build(), ["words"]) as (data, log):
        append(log, "words", [(f"w{i % 3}", "v") for i in range(10 * ROWS)])
        run(data, 0)
        plan(log, 0)
        open_tasks.close_open_tasks()
        shutil.rmtree(tmp_path / "state")
        job = loaded(data)
        lost = LostCheckpoint(job.topology, job.config, log)
        with pytest.raises(StateError, match=r"0_0 has written batch 0, .* its records for of-counts-repartition were"):
            lost.make()
        assert not Path(job.checkpoint).exists()
        reports = {report.task: report.outcome for report in lost.make(accept_loss=True)}
        assert reports == {"0_0": "rebuilt", "1_0": "empty"}
    open_tasks.close_open_tasks()


def test_another_topology_is_refused(app):
    _, log, job = app
    commit(log, 2)
    with pytest.raises(CheckpointMismatchError, match="store 'counts' is gone"):
        LostCheckpoint(topology("other"), job.config, log).make()
