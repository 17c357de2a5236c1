from __future__ import annotations

from pathlib import Path

from penstock.engines.threads.replicas.replica_folders import (
    continuous_place,
    continuous_replicas,
    global_folder,
    tasks_on_disk,
)
from penstock.topology.plan.plan import TaskId


def test_only_the_replicas_of_an_application_and_log_are_its_own(tmp_path: Path) -> None:
    mine = [continuous_place(tmp_path, "app", "log", task)[1] for task in ("0_0", "1_12")]
    others = [
        continuous_place(tmp_path, "app-two", "log", "0_0")[1],
        continuous_place(tmp_path, "app", "another log", "0_0")[1],
        tmp_path / "0_0-0123456789ab",
        tmp_path / "continuous-0_0-notes",
    ]
    for folder in (*mine, *others):
        folder.mkdir()
    assert list(continuous_replicas(tmp_path, "app", "log")) == mine


def test_there_may_be_no_folder_of_replicas(tmp_path: Path) -> None:
    assert list(continuous_replicas(tmp_path / "none", "app", "log")) == []


def test_the_copy_of_global_tables_is_no_task(tmp_path: Path) -> None:
    shared = global_folder(tmp_path, "app", "log")
    for folder in (continuous_place(tmp_path, "app", "log", "1_12")[1], shared):
        (folder / "slot-0").mkdir(parents=True)
        (folder / "slot-0" / "data.mdb").touch()
    assert shared in continuous_replicas(tmp_path, "app", "log")
    assert tasks_on_disk(str(tmp_path), "app", "log") == [TaskId(1, 12)]
