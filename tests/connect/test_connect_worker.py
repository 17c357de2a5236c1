"""Workers with tasks in processes of their own: a task that is killed loses nothing and doubles nothing."""

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request

import pytest

from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import ConfigError
from penstock.log import open_log

STRING = "org.apache.kafka.connect.storage.StringConverter"
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


def settings(folder, **more):
    return {
        "bootstrap.servers": f"sqlite:///{folder}/log.db?synchronous=off",
        "group.id": "workers",
        "config.storage.topic": "configs",
        "offset.storage.topic": "offsets",
        "status.storage.topic": "statuses",
        "key.converter": STRING,
        "value.converter": STRING,
        "offset.flush.interval.ms": "200",
        "listeners": "http://127.0.0.1:0",
        **more,
    }


@pytest.fixture
def worker(tmp_path):
    server = WorkerServer(WorkerConfig.of(settings(tmp_path), "distributed"))
    server.start()
    assert server.wait_until_ready(180)
    yield server
    server.stop()


def ask(server, method, path, body=None, timeout=120):
    data = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{server.port}{path}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def until(check, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")


def values(url, topic):
    with open_log(url) as log:
        if topic not in {each.name for each in log.topics()}:
            return []
        return [
            value.decode()
            for number in range(log.partitions(topic))
            for batch in log.read_range(topic, number, 0, log.end_offset(topic, number))
            for value in batch.column("value").to_pylist()
        ]


def task_state(server, name):
    status, body = ask(server, "GET", f"/connectors/{name}/status")
    return body["tasks"][0]["state"] if status == 200 and body["tasks"] else None


def test_a_killed_source_task_fails_alone_and_goes_on_after_its_restart_exactly_once(worker, tmp_path):
    source = tmp_path / "in.txt"
    lines = [f"line {number}" for number in range(20_000)]
    source.write_text("".join(f"{line}\n" for line in lines[:12_000]))
    config = {"connector.class": FILE_SOURCE, "file": str(source), "topic": "lines", "batch.size": "100"}
    assert ask(worker, "POST", "/connectors", {"name": "f", "config": config})[0] == 201
    url = worker.worker.config.log_url
    until(lambda: values(url, "lines"))
    handle = worker.worker.herder.tasks.handle(("f", 0))
    os.kill(handle.process.pid, signal.SIGKILL)
    until(lambda: task_state(worker, "f") == "FAILED")
    _, body = ask(worker, "GET", "/connectors/f/status")
    assert body["connector"]["state"] == "RUNNING"
    assert "signal 9" in body["tasks"][0]["trace"]
    with source.open("a") as out:
        out.write("".join(f"{line}\n" for line in lines[12_000:]))
    assert ask(worker, "POST", "/connectors/f/tasks/0/restart")[0] == 204
    until(lambda: len(values(url, "lines")) >= len(lines))
    assert values(url, "lines") == lines


def test_a_sink_task_that_is_killed_loses_nothing(worker, tmp_path):
    import pyarrow as pa

    url = worker.worker.config.log_url
    with open_log(url) as log:
        log.create_topic("in")
        log.append("in", 0, pa.RecordBatch.from_pydict({"value": [f"{n}".encode() for n in range(5000)]}))
    config = {"connector.class": FILE_SINK, "file": str(tmp_path / "out.txt"), "topics": "in"}
    assert ask(worker, "POST", "/connectors", {"name": "s", "config": config})[0] == 201
    out = tmp_path / "out.txt"
    until(lambda: out.exists() and out.stat().st_size)
    os.kill(worker.worker.herder.tasks.handle(("s", 0)).process.pid, signal.SIGKILL)
    until(lambda: task_state(worker, "s") == "FAILED")
    assert ask(worker, "POST", "/connectors/s/restart?includeTasks=true&onlyFailed=true")[0] == 202
    until(lambda: {*out.read_text().split()} >= {str(n) for n in range(5000)})


def test_a_config_provider_that_is_not_there_is_named(tmp_path):
    more = {"config.providers": "env", "config.providers.env.class": "nope"}
    with pytest.raises(ConfigError, match="nope"):
        WorkerServer(WorkerConfig.of(settings(tmp_path, **more), "distributed"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group.id": None}, 'Missing required configuration "group.id"'),
        ({"listeners": "ftp://here"}, "is not a listener"),
        ({"offset.flush.interval.ms": "soon"}, "Not a number of type LONG"),
    ],
)
def test_wrong_settings_of_a_worker_are_named(tmp_path, change, message):
    given = {name: value for name, value in {**settings(tmp_path), **change}.items() if value is not None}
    with pytest.raises(ConfigError, match=re.escape(message)):
        WorkerConfig.of(given, "distributed")


def test_a_worker_that_has_just_started_takes_the_first_request(tmp_path):
    server = WorkerServer(WorkerConfig.of(settings(tmp_path, **{"tasks.in.process": "true"}), "distributed"))
    server.start()
    try:
        config = {"connector.class": FILE_SOURCE, "file": str(tmp_path / "in.txt"), "topic": "lines"}
        assert ask(server, "POST", "/connectors", {"name": "f", "config": config})[0] == 201
    finally:
        server.stop()
