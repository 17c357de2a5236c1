"""More tasks than a worker had places for: all of them stay open, within what the machine allows."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from worker_support import loaded, prepared

from penstock import StreamsBuilder
from penstock.engines.micro_batches.worker import open_tasks
from penstock.engines.spark import worker_process
from penstock.engines.spark.worker_process import check_open_files, open_task_limit
from penstock.errors import EnvironmentProblemError
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, TaskRun

TASKS = 70


def keep(job, count: int) -> list[bool]:
    """Takes this many tasks and puts them back; says of each whether it was kept open."""
    found = []
    for partition in range(count):
        task = open_tasks.acquire_task(job, TaskRun(0, partition), job.plan.subtopologies[0].stores, keeps_state=True)
        found.append(not task.is_new)
        open_tasks.release_task(task)
    return found


@pytest.fixture
def job(tmp_path: Path):
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count().to_stream().to("counts")
    with prepared(tmp_path, builder.build(), ["words", "counts"]) as (data, _):
        yield loaded(data)
    open_tasks.close_open_tasks()


def test_all_tasks_stay_open(job) -> None:
    assert open_task_limit() > TASKS
    assert keep(job, TASKS) == [False] * TASKS
    assert keep(job, TASKS) == [True] * TASKS


def test_tasks_beyond_the_limit_are_closed_the_longest_unused_first(job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_tasks, "open_task_limit", lambda: 3)
    keep(job, 4)
    assert [key[-1] for key in open_tasks._open_tasks] == ["0_1", "0_2", "0_3"]


def plan(tasks: int) -> PhysicalPlan:
    sub = PlannedSubTopology(0, (), (), (), (), (), tasks, (0,), keeps_state=True, ticks=False)
    return PhysicalPlan("app", (sub,), {}, ())


def test_the_limit_of_open_files_is_checked(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(worker_process, "raise_file_limit", lambda: 1024)
    with caplog.at_level(logging.WARNING):
        check_open_files(plan(100))
        assert not caplog.records
        check_open_files(plan(1000))
    assert "keeps 192 of 1000 tasks" in caplog.text
    assert "ulimit -n 4256" in caplog.text
    monkeypatch.setattr(worker_process, "raise_file_limit", lambda: 300)
    with pytest.raises(EnvironmentProblemError, match="300 files") as caught:
        check_open_files(plan(1))
    assert "ulimit -n 512" in caught.value.hint
