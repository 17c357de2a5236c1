"""A machine gives back the space of tasks that have moved away: not of those that it has open, or had lately."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from penstock import Materialized, StreamsBuilder
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.replicas.replica_folders import (
    ReplicaCleanup,
    continuous_place,
    global_folder,
    tasks_on_disk,
)
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.state import private_folders as own_folder
from penstock.state.lmdb_replicas.folders import remove_idle
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.maps import ReplicaPosition
from penstock.topology.plan.plan import TaskId
from threads import thread_app

HOUR = 3_600
SERDES = {"default.key.serde": "string", "default.value.serde": "string"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as opened:
        opened.create_topic("lines", 4)
        yield opened


def app_of(log: EmbeddedLog, root: Path, **settings: Any) -> ThreadApp:
    builder = StreamsBuilder()
    builder.stream("lines").group_by_key().count(Materialized("count"))
    delay = {"state.cleanup.delay.ms": HOUR * 1000}
    return thread_app(builder.build(SERDES), SERDES | delay | settings, log, str(root / "replicas"))


def folder(app: ThreadApp, partition: int) -> Path:
    return continuous_place(str(app.replica_root), app.application_id, app.identity, f"0_{partition}")[1]


def grow_old(app: ThreadApp, partition: int) -> None:
    """Nobody has used the replica of a task for two hours."""
    for file in (folder(app, partition) / "slot-0").iterdir():
        os.utime(file, (file.stat().st_mtime - 2 * HOUR,) * 2)


def had(app: ThreadApp, *partitions: int) -> None:
    """This machine has had the tasks of these partitions."""
    for partition in partitions:
        TaskReplica.open(app, TaskId(0, partition)).close()


def on_disk(app: ThreadApp) -> list[str]:
    return sorted(map(str, tasks_on_disk(app.replica_root, app.application_id, app.identity)))


def test_replicas_that_nobody_has_had_open_for_the_delay_are_removed(log: EmbeddedLog, tmp_path: Path) -> None:
    app = app_of(log, tmp_path)
    had(app, 0, 1, 2)
    runs = TaskReplica.open(app, TaskId(0, 3))  # or follows: its replica is open too
    for partition in (0, 2, 3):
        grow_old(app, partition)
    cleanup = ReplicaCleanup(app)
    assert cleanup.remove() == [folder(app, 0).name, folder(app, 2).name]
    assert on_disk(app) == ["0_1", "0_3"]
    assert [file.name for file in (folder(app, 0) / "slot-0").iterdir()] == ["owner.lock"]
    runs.close()
    assert cleanup.remove() == []  # it was open a moment ago
    grow_old(app, 3)
    assert cleanup.remove() == [folder(app, 3).name]
    cleanup.close()


def test_a_replica_that_was_seen_open_counts_as_used_then(log: EmbeddedLog, tmp_path: Path) -> None:
    """A killed process notes nothing when it ends, and a task without records writes nothing."""
    app = app_of(log, tmp_path)
    replica = LmdbReplica(folder(app, 0), "any", ())
    grow_old(app, 0)
    assert not remove_idle(folder(app, 0), HOUR)
    replica._lock.close()  # as the kernel does for a killed process
    assert not remove_idle(folder(app, 0), HOUR)
    replica._close_env()
    grow_old(app, 0)
    assert remove_idle(folder(app, 0), HOUR)


def test_what_is_of_others_stays(log: EmbeddedLog, tmp_path: Path) -> None:
    app = app_of(log, tmp_path)
    other = app_of(log, tmp_path, **{"application.id": "other"})
    had(other, 0)
    grow_old(other, 0)
    shared = global_folder(str(app.replica_root), app.application_id, app.identity)
    (shared / "slot-0").mkdir(parents=True)
    foreign = Path(str(app.replica_root)) / "0_0-0123456789ab"  # of micro-batches
    (foreign / "slot-0").mkdir(parents=True)
    cleanup = ReplicaCleanup(app_of(log, tmp_path, **{"state.cleanup.delay.ms": 0}))
    assert cleanup.remove() == []
    assert folder(other, 0).exists()
    assert shared.exists()
    assert foreign.exists()
    cleanup.close()


def test_a_task_that_comes_back_finds_a_whole_replica_or_none(log: EmbeddedLog, tmp_path: Path) -> None:
    """Two threads remove all that is not open, again and again, while the task comes and goes."""
    at = folder(app_of(log, tmp_path), 0)
    ended = threading.Event()

    def remove() -> None:
        while not ended.is_set():
            remove_idle(at, -1.0)

    removers = [threading.Thread(target=remove, daemon=True) for _ in range(2)]
    for each in removers:
        each.start()
    try:
        for n in range(60):
            replica = LmdbReplica(at, "any", ["s"])
            key = b"%d" % n
            replica.apply(["s"], lambda _: [([key], [key])], ReplicaPosition())  # noqa: B023 - called at once
            assert replica.is_there()
            reader = replica.reader()
            assert reader.map("s").get(key) == key
            reader.close()
            replica.close()
    finally:
        ended.set()
        for each in removers:
            each.join()
    remove_idle(at, -1.0)
    assert not list(at.rglob("data.mdb"))


def test_a_slot_that_is_emptied_between_its_opening_and_its_lock_is_used(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_of(log, tmp_path)
    had(app, 0)
    at = folder(app, 0)

    def open_lock(path: Path) -> Any:
        lock = own_folder.open_lock(path)
        assert remove_idle(at, -1.0)
        return lock

    monkeypatch.setattr("penstock.state.lmdb_replicas.lmdb_replica.open_lock", open_lock)
    replica = LmdbReplica(at, "any", ())
    assert (replica.directory, replica.is_there()) == (at / "slot-0", True)
    assert not remove_idle(at, -1.0)
    replica.close()


def test_it_looks_again_and_again_until_it_is_closed(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engines.threads.replicas.replica_folders._LEAST_PAUSE_S", 0.01)
    app = app_of(log, tmp_path, **{"state.cleanup.delay.ms": 0})
    cleanup = ReplicaCleanup(app)
    for partition in range(3):
        had(app, partition)
        eventually(lambda: not on_disk(app))
    cleanup.close()
    eventually(lambda: "penstock-cleanup" not in {each.name for each in threading.enumerate()})
