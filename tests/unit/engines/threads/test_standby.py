"""Standby tasks beside the threads that write their changelogs, over an embedded log and without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.spark.topology_bytes import pickle_app
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.hosting.epoch_job import ContinuousJob
from penstock.engines.threads.hosting.hosted_tasks import HostedTasks
from penstock.engines.threads.hosting.restore_notes import RestoreNotes
from penstock.engines.threads.loop.standby import StateUpdater
from penstock.engines.threads.loop.thread_environment import ThreadHooks
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.errors import ConfigError, PenstockError, StateError, UnknownTopicError
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.topology.plan.plan import TaskId
from threads import append, new_thread, records_of, settle, thread_app

SERDES = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}
TASK = TaskId(0, 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as opened:
        yield opened


def app_at(log: EmbeddedLog, root: Path, **config: Any) -> ThreadApp:
    builder = StreamsBuilder()
    builder.stream("lines").group_by_key().count(Materialized("count")).map_values(str).to_stream().to("counts")
    for topic in ("lines", "counts"):
        if topic not in {each.name for each in log.topics()}:
            log.create_topic(topic)
    return thread_app(builder.build(SERDES | config), SERDES | config, log, str(root))


def updater(app: ThreadApp, log: EmbeddedLog, progress: Any = lambda _: None) -> Any:
    return closing(StateUpdater(app, lambda: open_log(log.url), progress))


def count(log: EmbeddedLog, keys: int, time: int) -> None:
    append(log, "lines", [(f"k{n}", "x", time) for n in range(keys)])


def test_a_standby_follows_and_only_the_rest_is_restored_where_it_takes_over(log: EmbeddedLog, tmp_path: Path) -> None:
    here, there = app_at(log, tmp_path / "here"), app_at(log, tmp_path / "there")
    active = new_thread(here, log)
    active.start()
    with updater(there, log) as following:
        following.follow(there, [TASK])
        count(log, 500, 1)
        settle(active)
        eventually(lambda: (following.end_sums(), following.lags()) == ({TASK: 500}, {TASK: 0}))
        count(log, 200, 2)
        settle(active)
        eventually(lambda: (following.end_sums(), following.lags()) == ({TASK: 700}, {TASK: 0}))
        replica = following.take(TASK)
        assert replica is not None
        assert following.lags() == {}
    count(log, 20, 3)
    settle(active)
    for each in active.remove([TASK]).values():
        each.close()
    restored: list[Any] = []
    with closing(Closed(new_thread(there, log, [], ThreadHooks(on_restore=restored.append), name="thread-1"))) as new:
        new.thread.start()
        new.thread.add(there, {TASK: replica})
        assert [each.restored for each in restored if each.is_done] == [20]
        count(log, 1, 4)
        settle(new.thread)
    assert records_of(log, "counts")[-1] == (b"k0", b"4", 4)
    active.close(commit=True)


class Closed:
    def __init__(self, thread: Any) -> None:
        self.thread = thread

    def close(self) -> None:
        self.thread.close(commit=True)


def test_a_task_is_restored_beside_the_loop_and_its_progress_is_reported(log: EmbeddedLog, tmp_path: Path) -> None:
    active = new_thread(app_at(log, tmp_path / "here"), log)
    active.start()
    count(log, 100, 1)
    settle(active)
    active.close(commit=True)
    there = app_at(log, tmp_path / "there")
    progress: list[Any] = []
    with updater(there, log, progress.append) as restoring:
        restoring.follow(there, [], [TASK])
        eventually(lambda: restoring.lags() == {TASK: 0})
    assert [(each.store, each.offset, each.restored) for each in progress] == [("count", 0, 0), ("count", 100, 100)]


def test_standbys_that_are_no_longer_wanted_let_go_of_their_replica(log: EmbeddedLog, tmp_path: Path) -> None:
    app = app_at(log, tmp_path / "there")
    with updater(app, log) as following:
        following.follow(app, [TASK])
        eventually(lambda: following.lags() == {TASK: 0})
        following.follow(app, [])
        with closing(TaskReplica.open(app, TASK)):
            assert {path.name for path in (tmp_path / "there").glob("*/slot-*")} == {"slot-0"}


def test_a_standby_survives_a_log_that_is_gone_for_a_while(log: EmbeddedLog, tmp_path: Path) -> None:
    app = app_at(log, tmp_path / "there")
    calls = []

    def opened() -> EmbeddedLog:
        calls.append(1)
        return open_log(f"sqlite:///{tmp_path}/nowhere/at/all.db" if len(calls) == 1 else log.url)

    with closing(StateUpdater(app, opened)) as following:
        following.follow(app, [TASK])
        eventually(lambda: following.lags() == {TASK: 0}, facts=lambda: calls)


def restorable(log: EmbeddedLog, tmp_path: Path) -> None:
    """Leave 100 records in the changelog."""
    active = new_thread(app_at(log, tmp_path / "here"), log)
    active.start()
    count(log, 100, 1)
    settle(active)
    active.close(commit=True)


def error_of(following: StateUpdater) -> PenstockError:
    """The error of which the updater ends."""

    def found() -> PenstockError | None:
        try:
            following.check()
        except PenstockError as error:
            return error
        return None

    error: PenstockError = eventually(found)
    return error


@pytest.mark.parametrize("raised", [RuntimeError("what"), MemoryError(), SystemExit(3), KeyError("x")], ids=repr)
def test_whatever_ends_the_updater_reaches_the_thread(log: EmbeddedLog, tmp_path: Path, raised: BaseException) -> None:
    restorable(log, tmp_path)
    there = app_at(log, tmp_path / "there")
    calls = []

    def fail(progress: Any) -> None:
        calls.append(progress)
        raise raised

    with updater(there, log, fail) as restoring:
        restoring.check()
        restoring.follow(there, [], [TASK])
        error = error_of(restoring)
        assert isinstance(error, StateError)
        assert error.__cause__ is raised
        assert type(raised).__name__ in error.message
        replica = restoring.take(TASK)  # nobody waits for an updater that has ended
        replica.close()
    assert len(calls) == 1  # what cannot pass is not tried again


def test_a_replica_that_cannot_be_opened_is_not_tried_for_ever(log: EmbeddedLog, tmp_path: Path) -> None:
    app = app_at(log, tmp_path / "there")
    (tmp_path / "there").write_text("a file in its place")
    with updater(app, log) as following:
        following.follow(app, [TASK])
        assert error_of(following) is error_of(following)


def test_a_changelog_that_is_gone_is_waited_for_as_long_as_task_timeout_ms(log: EmbeddedLog, tmp_path: Path) -> None:
    app = app_at(log, tmp_path / "there", **{"task.timeout.ms": 0})
    log.delete_topic("app-count-changelog")
    with updater(app, log) as following:
        following.follow(app, [TASK])
        assert isinstance(error_of(following), UnknownTopicError)


def test_a_changelog_that_comes_back_in_time_is_followed(log: EmbeddedLog, tmp_path: Path) -> None:
    app = app_at(log, tmp_path / "there")
    log.delete_topic("app-count-changelog")
    with updater(app, log) as following:
        following.follow(app, [TASK])
        log.create_topic("app-count-changelog")
        eventually(lambda: following.lags() == {TASK: 0})
        following.check()


def test_a_log_that_cannot_be_opened_for_a_reason_that_stays(log: EmbeddedLog, tmp_path: Path) -> None:
    app = app_at(log, tmp_path / "there")

    def refused() -> EmbeddedLog:
        raise ConfigError("no such user")

    with closing(StateUpdater(app, refused)) as following:
        following.follow(app, [TASK])
        assert isinstance(error_of(following), ConfigError)


def test_the_thread_that_hosts_tasks_ends_with_the_updaters_error(log: EmbeddedLog, tmp_path: Path) -> None:
    settings = {"application.id": "app", "bootstrap.servers": log.url, "task.timeout.ms": 0, **SERDES}
    app = app_at(log, tmp_path / "there", **{"task.timeout.ms": 0})
    job = ContinuousJob(
        plan=app.plan,
        pickled_app=pickle_app(app.topology, StreamsConfig(settings)),
        log_url=log.url,
        log_settings={},
        identity=app.identity,
        epoch=1,
        threads=1,
        replica_root=str(tmp_path / "there"),
        changelogs=app.changelogs,
        numbers_topic=app.numbers_topic,
    )
    first = {"revision": 1, "active": [], "standby": [str(TASK)]}
    log.delete_topic("app-count-changelog")
    thread = new_thread(app, log, [], name="thread-1")
    with closing(HostedTasks(job, log, RestoreNotes(), first, None)) as tasks:
        tasks.follow()

        def ends() -> bool:
            try:
                tasks.change(thread, first, None)
            except UnknownTopicError:
                return True
            return False

        eventually(ends)
