"""The restart policy: when failed tasks start again."""

import threading

import pytest

from penstock.connect.connectors import known_plugins
from penstock.connect.data import SettingError
from penstock.connect.delivery.local_run import ConnectorRun
from penstock.connect.rest import WorkerServer
from penstock.connect.storage.config_store import RestartRequest
from penstock.connect.tasks.task_handles import ThreadTask
from penstock.connect.tasks.task_parts import TaskSpec
from penstock.connect.worker.group import WorkerView
from penstock.connect.worker.task_restarts import RestartPolicy, TaskRestarts
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import FencedError, LogUnavailableError
from penstock.log import Consumer, Producer
from penstock.log.open import open_log
from test_connect_worker import ask, until
from test_connect_worker import settings as worker_settings

TASK = ("reader", 0)
CONFIG = {"restart.policy": "on-failure", "restart.delay.ms": "1000", "restart.delay.max.ms": "4000"}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_waits_double_up_to_their_limit_and_begin_anew_after_a_good_run():
    clock = Clock()
    restarts = TaskRestarts(clock)
    waits = []
    for _ in range(4):
        restarts.note(TASK, "FAILED", CONFIG)
        began = clock.now
        while not restarts.due([TASK]):
            clock.now += 0.5
        waits.append(clock.now - began)
        restarts.note(TASK, "RUNNING", CONFIG)
        clock.now += 1
    assert waits == [1, 2, 4, 4]
    clock.now += 10
    restarts.note(TASK, "FAILED", CONFIG)
    clock.now += 1
    assert restarts.due([TASK]) == [TASK]
    assert restarts.due([TASK]) == []


def test_a_task_that_was_restarted_by_a_request_meanwhile_is_not_restarted_again():
    clock = Clock()
    restarts = TaskRestarts(clock)
    for state in ("RUNNING", "PAUSED"):
        restarts.note(TASK, "FAILED", CONFIG)
        restarts.note(TASK, state, CONFIG)
        clock.now += 10
        assert restarts.due([TASK]) == []


def test_attempts_are_counted_and_tasks_of_other_workers_forgotten():
    clock = Clock()
    restarts = TaskRestarts(clock)
    limited = {**CONFIG, "restart.max.attempts": "1"}
    for expected in ([TASK], []):
        restarts.note(TASK, "FAILED", limited)
        clock.now += 10
        assert restarts.due([TASK]) == expected
    other = ("writer", 1)
    restarts.note(other, "FAILED", CONFIG)
    assert restarts.due([]) == []
    clock.now += 10
    assert restarts.due([other]) == []


def test_without_a_policy_failed_tasks_stay_and_wrong_settings_are_refused():
    restarts = TaskRestarts(Clock())
    restarts.note(TASK, "FAILED", {})
    assert restarts.due([TASK]) == []
    for name, value in (("restart.policy", "always"), ("restart.delay.ms", "x"), ("restart.max.attempts", "-2")):
        with pytest.raises(SettingError, match=name):
            RestartPolicy.of({"restart.policy": "on-failure", name: value})


PLUGINS = """
from pathlib import Path
from penstock.connect.data import DataError
from penstock.connect.functions import Record, sink, source

@source("Flaky", topic=str, marks=str)
def flaky(settings, offsets):
    marks = Path(settings.marks)
    marks.write_text(marks.read_text() + "x" if marks.exists() else "x")
    if len(marks.read_text()) < 3:
        raise ValueError("not yet")
    for at in range((offsets.get({}) or {"next": 0})["next"], 3):
        yield Record(settings.topic, "abc"[at], partition={}, offset={"next": at + 1})

@sink("Picky", out=str)
def picky(settings, batch):
    if any(record.value == "b" for record in batch):
        raise DataError("no b here")
    with Path(settings.out).open("a") as out:
        out.writelines(record.value for record in batch)
"""


def test_a_restart_of_a_connector_that_was_deleted_meanwhile_is_left_out(tmp_path):
    server = WorkerServer(WorkerConfig.of(worker_settings(tmp_path), "distributed"))
    server.start()
    try:
        assert server.wait_until_ready(60)
        file = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "t"}
        assert ask(server, "PUT", "/connectors/reader/config", file)[0] == 201
        herder = server.worker.herder
        until(lambda: "reader" in herder.connectors)
        with herder.turn("deleting it before its restart is read"):
            herder.stores.configs.put_restart(RestartRequest("reader", only_failed=False, include_tasks=True))
            herder.stores.configs.remove_connector("reader")
            herder.tick()
        assert ask(server, "GET", "/connectors")[1] == []
        assert "reader" not in herder.connectors
    finally:
        server.stop()


def started(folder, *names):
    """A worker with sources of one task each, which run."""
    server = WorkerServer(WorkerConfig.of(worker_settings(folder, **{"tasks.in.process": "true"}), "distributed"))
    server.start()
    assert server.wait_until_ready(60)
    for name in names:
        file = {"connector.class": "FileStreamSource", "file": str(folder / f"{name}.txt"), "topic": "t"}
        assert ask(server, "PUT", f"/connectors/{name}/config", file)[0] == 201
    statuses = server.worker.herder.stores.statuses
    until(lambda: [status.state for status in statuses.tasks.values()] == ["RUNNING"] * len(names))
    return server, server.worker.herder


def test_a_worker_that_was_removed_from_its_group_leaves_the_states_of_its_tasks_to_their_next_owner(
    tmp_path, monkeypatch
):
    server, herder = started(tmp_path, "reader")
    try:
        away = WorkerView("", leads=False, generation=1, connectors=frozenset(), tasks=frozenset(), joined=False)
        before = dict(herder.stores.statuses.tasks), dict(herder.stores.statuses.connectors)
        with herder.turn("reading a restart behind its session"):
            monkeypatch.setattr(herder.membership, "poll", lambda *_: away)
            herder.stores.configs.put_restart(RestartRequest("reader", only_failed=False, include_tasks=True))
            herder.tick()
            assert (herder.stores.statuses.tasks, herder.stores.statuses.connectors) == before
    finally:
        monkeypatch.undo()
        server.stop()


def test_a_restart_whose_state_cannot_be_written_leaves_later_requests_for_the_next_tick(tmp_path, monkeypatch):
    server, herder = started(tmp_path, "one", "two")
    try:
        statuses = herder.stores.statuses

        def away(_):
            raise LogUnavailableError("no broker answers", hint="It comes back.")

        with herder.turn("restarting both"):
            for name in ("one", "two"):
                herder.stores.configs.put_restart(RestartRequest(name, only_failed=False, include_tasks=True))
            monkeypatch.setattr(statuses, "put_tasks", away)
            with pytest.raises(LogUnavailableError):
                herder.tick()
            monkeypatch.undo()
            second = herder.tasks.handle(("two", 0))
            herder.tick()
        until(lambda: herder.tasks.handle(("two", 0)) not in (None, second))
    finally:
        server.stop()


SLOW = """
import time
from pathlib import Path
from penstock.connect.api import SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Kind, Setting

class SlowTask(SourceTask):
    java_class = "SlowTask"

    def start(self, settings):
        marks = Path(settings["marks"])
        with marks.open("a") as out:
            out.write("x")
        if marks.stat().st_size == 1:
            raise ValueError("not yet")
        while not Path(settings["go"]).exists():
            time.sleep(0.01)

    def poll(self):
        time.sleep(0.01)
        return None

class Slow(SourceConnector):
    java_class = "Slow"
    config = ConfigDef([Setting(name=name, kind=Kind.STRING) for name in ("marks", "go")])
    task_class = SlowTask

    def start(self, settings):
        self.settings = dict(settings)

    def task_configs(self, max_tasks):
        return [self.settings]
"""


def test_a_task_that_is_starting_again_is_left_alone_by_restarts_of_what_has_failed(tmp_path):
    (tmp_path / "plugins.py").write_text(SLOW)
    settings = worker_settings(tmp_path, **{"plugin.path": str(tmp_path / "plugins.py")})
    server = WorkerServer(WorkerConfig.of(settings, "distributed"))
    server.start()

    def state():
        tasks = ask(server, "GET", "/connectors/slow/status")[1].get("tasks")
        return tasks[0]["state"] if tasks else None

    try:
        assert server.wait_until_ready(60)
        marks, go = tmp_path / "marks", tmp_path / "go"
        config = {"connector.class": "Slow", "marks": str(marks), "go": str(go)}
        assert ask(server, "PUT", "/connectors/slow/config", config)[0] == 201
        until(lambda: state() == "FAILED")
        restart = "/connectors/slow/restart?includeTasks=true&onlyFailed=true"
        shown = ask(server, "POST", restart)[1]["tasks"]
        assert [task["state"] for task in shown] == ["RESTARTING"]
        until(lambda: marks.read_text() == "xx")
        for _ in range(5):
            assert [task["state"] for task in ask(server, "POST", restart)[1]["tasks"]] == ["RESTARTING"]
            server.worker.herder.tick()
        go.touch()
        until(lambda: state() == "RUNNING")
        assert marks.read_text() == "xx"
    finally:
        go.touch()
        server.stop()


def test_a_worker_starts_failed_tasks_again_and_keeps_the_records_that_a_sink_refuses(tmp_path):
    (tmp_path / "plugins.py").write_text(PLUGINS)
    more = {"plugin.path": str(tmp_path / "plugins.py"), "tasks.in.process": "true"}
    server = WorkerServer(WorkerConfig.of(worker_settings(tmp_path, **more), "distributed"))
    server.start()
    try:
        assert server.wait_until_ready(60)
        log = server.worker.herder.log
        log.create_topic("in", 1)
        flaky = {"connector.class": "Flaky", "topic": "in", "marks": str(tmp_path / "marks")}
        assert ask(server, "PUT", "/connectors/wrong/config", {**flaky, "restart.policy": "ever"})[0] == 400
        policy = {"restart.policy": "on-failure", "restart.delay.ms": "10"}
        assert ask(server, "PUT", "/connectors/flaky/config", {**flaky, **policy})[0] == 201
        picky = {"connector.class": "Picky", "topics": "in", "out": str(tmp_path / "out"), "errors.tolerance": "all"}
        picky |= {"errors.deadletterqueue.topic.name": "dead", "errors.deadletterqueue.context.headers.enable": "true"}
        assert ask(server, "PUT", "/connectors/picky/config", picky)[0] == 201
        out = tmp_path / "out"
        until(lambda: out.exists() and sorted(out.read_text()) == ["a", "c"])
        until(lambda: any(topic.name == "dead" and log.end_offset("dead", 0) == 1 for topic in log.topics()))
        row = log.read("dead", 0, 0).records.to_pylist()[0]
        assert row["value"] == b"b"
        assert "__connect.errors.exception.message" in {each["key"] for each in row["headers"]}
        assert (tmp_path / "marks").read_text() == "xxx"
    finally:
        server.stop()


PUT_OUT = """
import sqlite3
from pathlib import Path
from penstock.connect.functions import sink

@sink("PutOut", log=str, out=str)
def put_out(settings, batch):
    with Path(settings.out).open("a") as out:
        out.writelines(f"{record.value} " for record in batch)
    with sqlite3.connect(settings.log, timeout=60) as log:  # as the coordinator does to a member that was silent
        log.execute("DELETE FROM group_members")
        log.execute("DELETE FROM group_owners")
        log.execute("UPDATE groups SET generation = generation + 1")
    log.close()
"""


def test_a_sinks_task_whose_group_has_put_it_out_before_a_commit_goes_on(tmp_path):
    (tmp_path / "plugins.py").write_text(PUT_OUT)
    url, out = f"sqlite:///{tmp_path}/log.db", tmp_path / "out.txt"
    connector = {"connector.class": "PutOut", "topics": "t", "name": "s", "log": f"{tmp_path}/log.db", "out": str(out)}
    own = {"bootstrap.servers": url, "offset.flush.interval.ms": "0", "plugin.path": str(tmp_path / "plugins.py")}
    spec = TaskSpec(("s", 0), connector, connector, worker_settings(tmp_path, **own), "distributed", "offsets", url)
    with open_log(url) as log, Producer(log) as producer:
        log.create_topic("t", 1)
        task = ThreadTask(spec, "STARTED")
        news = []
        try:
            for text in ("a", "b", "c"):
                producer.send("t", text.encode())
                producer.flush()
                until(lambda text=text: (out.exists() and text in out.read_text().split()) or not task.alive())
            news += task.news()
        finally:
            task.want("STOPPED")
            assert task.join(60)
    assert "FAILED" not in [each.state for each in news], news
    assert set(out.read_text().split()) == {"a", "b", "c"}


LEAVES = """
import sys
from penstock.connect.functions import sink

@sink("Leaves")
def leaves(settings, batch):
    if batch:
        sys.exit("the library behind it has had enough")
"""


def test_a_thread_whose_connector_ends_the_process_is_failed(tmp_path):
    (tmp_path / "plugins.py").write_text(LEAVES)
    url = f"sqlite:///{tmp_path}/log.db"
    connector = {"connector.class": "Leaves", "topics": "t", "name": "s"}
    own = {"bootstrap.servers": url, "plugin.path": str(tmp_path / "plugins.py")}
    spec = TaskSpec(("s", 0), connector, connector, worker_settings(tmp_path, **own), "distributed", "offsets", url)
    with open_log(url) as log, Producer(log) as producer:
        log.create_topic("t", 1)
        producer.send("t", b"a")
        producer.flush()
        task = ThreadTask(spec, "STARTED")
        assert task.join(60)
    last = [each for each in task.news() if each.state][-1]
    assert last.state == "FAILED"
    assert "had enough" in last.trace


def test_a_run_beside_a_worker_that_has_the_group_says_so(tmp_path):
    with open_log(f"sqlite:///{tmp_path}/log.db") as log, Producer(log) as producer:
        log.create_topic("t", 1)
        producer.send("t", b"1")
        producer.flush()
        with Consumer(log, group="connect-s") as member:
            member.subscribe("t")
            member.poll(timeout_s=0)
            connector = {"connector.class": "FileStreamSinkConnector", "topics": "t", "name": "s"}
            connector["file"] = f"{tmp_path}/out"
            run = ConnectorRun(log, connector, known_plugins(()))
            with pytest.raises(FencedError, match="only they may commit"):
                run.run(threading.Event(), once=True)


HANGS = """
import time
from pathlib import Path
from penstock.connect.functions import sink

@sink("Hangs", folder=str)
def hangs(settings, batch):
    Path(settings.folder, "begun").touch()
    while not Path(settings.folder, "gate").exists():
        time.sleep(0.05)
"""


def test_a_thread_that_was_left_alone_is_not_waited_for(tmp_path):
    (tmp_path / "plugins.py").write_text(HANGS)
    url = f"sqlite:///{tmp_path}/log.db"
    connector = {"connector.class": "Hangs", "topics": "t", "name": "s", "folder": str(tmp_path)}
    own = {"bootstrap.servers": url, "plugin.path": str(tmp_path / "plugins.py")}
    spec = TaskSpec(("s", 0), connector, connector, worker_settings(tmp_path, **own), "distributed", "offsets", url)
    with open_log(url) as log, Producer(log) as producer:
        log.create_topic("t", 1)
        producer.send("t", b"a")
        producer.flush()
        task = ThreadTask(spec, "STARTED")
        until((tmp_path / "begun").exists)
        task.want("STOPPED")
        task.kill()
        assert not task.join(3600)
        (tmp_path / "gate").touch()
        until(lambda: not task.alive())
