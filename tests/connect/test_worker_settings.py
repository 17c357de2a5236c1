"""Settings of workers that no other test sets: each does what its documentation says, as in Kafka Connect."""

import base64
import json
import re
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventually import eventually
from penstock.connect.data import SettingError
from penstock.connect.rest import WorkerServer
from penstock.connect.tasks.task_parts import transactional_id
from penstock.connect.worker_settings import WorkerConfig
from penstock.log import Producer, open_log
from test_connect_worker import FILE_SOURCE, ask, settings, task_state, values

SLOW_END = """
import time
from pathlib import Path

from penstock.connect.api import SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Kind, Setting


class SlowEndTask(SourceTask):
    java_class = "SlowEndTask"

    def start(self, settings):
        self.folder = Path(settings["folder"])

    def poll(self):
        time.sleep(0.01)

    def stop(self):
        time.sleep(6)  # a second more than a task has by default
        (self.folder / "ended").touch()


class SlowEnd(SourceConnector):
    java_class = "SlowEnd"
    version = "1.0"
    config = ConfigDef([Setting(name="folder", kind=Kind.STRING)])
    task_class = SlowEndTask

    def start(self, settings):
        self.settings = dict(settings)

    def task_configs(self, max_tasks):
        return [self.settings]
"""


@contextmanager
def running(folder, **more):
    given = settings(folder, **{"tasks.in.process": "true", **more})
    server = WorkerServer(WorkerConfig.of(given, "distributed"))
    server.start()
    try:
        assert server.wait_until_ready(120)
        yield server
    finally:
        server.stop()


def create(server, **config):
    body = {"name": "f", "config": config}
    eventually(lambda: ask(server, "POST", "/connectors", body)[0] == 201)  # 409 while the worker does not lead yet
    eventually(lambda: task_state(server, "f") == "RUNNING")


def file_source(folder, **more):
    (folder / "in.txt").write_text("one\n")
    return {"connector.class": FILE_SOURCE, "file": str(folder / "in.txt"), "topic": "lines", **more}


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_only_tasks_that_deliver_exactly_once_are_fenced_by_newer_ones(tmp_path, guarantee):
    with running(tmp_path, **{"delivery.guarantee": guarantee}) as server:
        url = server.worker.config.log_url
        create(server, **file_source(tmp_path))
        eventually(lambda: values(url, "lines") == ["one"])
        with open_log(url) as log:
            Producer(log, transactional_id=transactional_id(server.worker.config, ("f", 0))).close()
        with (tmp_path / "in.txt").open("a") as out:
            out.write("two\n")
        if guarantee == "exactly_once":
            eventually(lambda: task_state(server, "f") == "FAILED")
            assert values(url, "lines") == ["one"]
        else:
            eventually(lambda: values(url, "lines") == ["one", "two"])


def test_the_key_of_requests_between_workers_is_renewed_after_its_time(tmp_path):
    with running(tmp_path, **{"inter.worker.key.ttl.ms": "1"}) as server:
        configs = server.worker.herder.stores.configs
        keys = {eventually(lambda: configs.state.session_key)}
        for wanted in (2, 3):
            eventually(lambda wanted=wanted: keys.add(configs.state.session_key) or len(keys) >= wanted)


def test_a_worker_with_users_answers_nobody_else(tmp_path):
    (tmp_path / "users").write_text("ann:secret\nbob:other\n")

    def asked(server, user):
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/connectors")
        if user:
            request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, None

    with running(tmp_path, **{"penstock.users.file": str(tmp_path / "users")}) as server:
        assert asked(server, "ann:secret") == asked(server, "bob:other") == (200, [])
        assert asked(server, "ann:other") == asked(server, None) == (401, None)


@pytest.mark.parametrize("hides", ["true", "false"])
def test_passwords_are_stars_in_answers_only_if_that_is_wanted(tmp_path, hides):
    config = file_source(tmp_path, **{"producer.override.ssl.key.password": "open"})
    with running(tmp_path, **{"rest.hide.passwords": hides}) as server:
        create(server, **config)
        _, shown = ask(server, "GET", "/connectors/f/config")
        assert shown["producer.override.ssl.key.password"] == ("****" if hides == "true" else "open")
        assert ask(server, "PUT", "/connectors/f/config", {**shown, "topic": "others"})[0] == 200
        kept = server.worker.herder.stores.configs.state.connectors["f"]
        assert (kept["producer.override.ssl.key.password"], kept["topic"]) == ("open", "others")


def test_a_task_has_the_time_of_the_setting_to_end(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_END)
    more = {"task.shutdown.graceful.timeout.ms": "600000", "plugin.path": str(tmp_path / "slow.py")}
    with running(tmp_path, **more, **{"tasks.in.process": "false"}) as server:
        create(server, **{"connector.class": "SlowEnd", "folder": str(tmp_path)})
        assert ask(server, "DELETE", "/connectors/f")[0] == 204
        eventually(Path(tmp_path, "ended").exists)  # nobody has killed it


@pytest.mark.parametrize(("enabled", "partitions"), [("true", 3), ("false", 1)])
def test_topics_are_created_as_a_connector_says_only_if_that_is_enabled(tmp_path, enabled, partitions):
    own = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "1"}
    with running(tmp_path, **{"topic.creation.enable": enabled}) as server:
        create(server, **file_source(tmp_path, **own))
        eventually(lambda: "lines" in {info.name for info in server.worker.log.topics()})
        assert server.worker.log.partitions("lines") == partitions


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_worker_notes_the_topics_of_its_connectors_only_if_that_is_enabled(tmp_path, enabled):
    with running(tmp_path, **{"topic.tracking.enable": enabled}) as server:
        create(server, **file_source(tmp_path))
        eventually(lambda: values(server.worker.config.log_url, "lines") == ["one"])
        if enabled == "true":
            eventually(lambda: ask(server, "GET", "/connectors/f/topics") == (200, {"f": {"topics": ["lines"]}}))
            return
        refusal = (403, {"error_code": 403, "message": "Topic tracking is disabled."})
        assert ask(server, "GET", "/connectors/f/topics") == refusal
        assert ask(server, "PUT", "/connectors/f/topics/reset") == refusal


@pytest.mark.parametrize("name", ["key.converter", "value.converter", "header.converter"])
def test_a_converter_that_is_not_there_ends_the_start(tmp_path, name):
    server = WorkerServer(WorkerConfig.of(settings(tmp_path, **{name: "org.acme.Converter"}), "distributed"))
    expected = f"Invalid value org.acme.Converter for configuration {name}: Class org.acme.Converter could not be found"
    try:
        with pytest.raises(SettingError, match=re.escape(expected)):
            server.start()
    finally:
        server.stop()
