"""All requests that kcctl makes, as its client sends them, and the forms of the answers that it reads."""

import http.client
import json

import pytest

from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from test_connect_worker import settings as worker_settings
from test_connect_worker import task_state, until

JSON = {"Accept": "application/json"}


@pytest.fixture
def worker(tmp_path):
    server = WorkerServer(WorkerConfig.of(worker_settings(tmp_path, **{"tasks.in.process": "true"}), "distributed"))
    server.start()
    assert server.wait_until_ready(180)
    yield server
    server.stop()


def ask(worker, method, path, body=None):
    """The answer's status and JSON; a body is sent as text, as kcctl has read it from a file."""
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
    headers = JSON if method in ("GET", "DELETE") else {**JSON, "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if content else None


def test_a_connector_through_its_life_by_the_requests_of_kcctl(worker, tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\n")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "lines",
        "tasks.max": "1",
    }

    status, info = ask(worker, "GET", "/")
    assert (status, set(info)) == (200, {"version", "commit", "kafka_cluster_id"})
    plugins = ask(worker, "GET", "/connector-plugins?connectorsOnly=false")[1]
    assert all(
        {"class", "type", "version"} <= set(plugin) <= {"class", "type", "version", "experimental"}
        for plugin in plugins
    )
    assert {plugin["type"] for plugin in plugins} >= {"source", "sink", "converter", "transformation", "predicate"}
    keys = ask(worker, "GET", "/connector-plugins/FileStreamSource/config")[1]
    assert {"name", "type", "required", "default_value", "importance", "documentation"} <= set(keys[0])
    found = ask(worker, "PUT", "/connector-plugins/FileStreamSource/config/validate", {**config, "name": "f"})[1]
    assert (found["error_count"], set(found)) == (0, {"name", "error_count", "groups", "configs"})

    assert ask(worker, "GET", "/connectors/") == (200, [])
    status, made = ask(worker, "POST", "/connectors/", {"name": "f", "config": config})
    assert (status, made["name"], made["type"], set(made)) == (201, "f", "source", {"name", "config", "tasks", "type"})
    until(lambda: task_state(worker, "f") == "RUNNING")
    assert ask(worker, "GET", "/connectors/f")[1]["tasks"] == [{"connector": "f", "task": 0}]
    expanded = ask(worker, "GET", "/connectors?expand=info&expand=status")[1]["f"]
    assert (expanded["info"]["config"]["topic"], expanded["status"]["connector"]["state"]) == ("lines", "RUNNING")
    state = ask(worker, "GET", "/connectors/f/status")[1]
    assert (state["connector"]["worker_id"], state["tasks"][0]["state"]) == (worker.worker.worker_id, "RUNNING")
    until(lambda: ask(worker, "GET", "/connectors/f/topics")[1] == {"f": {"topics": ["lines"]}})
    assert ask(worker, "GET", "/connectors/f/config")[1] == {**config, "name": "f"}
    assert ask(worker, "GET", "/connectors/f/tasks-config")[0] == 404  # gone since Kafka 4.0

    assert ask(worker, "PUT", "/connectors/f/config", {**config, "batch.size": "7"})[1]["config"]["batch.size"] == "7"
    assert ask(worker, "POST", "/connectors/f/restart")[0] == 204
    status, restarted = ask(worker, "POST", "/connectors/f/restart?includeTasks=true&onlyFailed=false")
    assert (status, restarted["connector"]["state"], restarted["tasks"][0]["state"]) == (
        202,
        "RESTARTING",
        "RESTARTING",
    )
    until(lambda: task_state(worker, "f") == "RUNNING")
    assert ask(worker, "POST", "/connectors/f/tasks/0/restart") == (204, None)
    for verb, status in (("pause", 202), ("resume", 202), ("stop", 204)):
        assert ask(worker, "PUT", f"/connectors/f/{verb}") == (status, None)

    until(lambda: ask(worker, "GET", "/connectors/f/status")[1]["tasks"] == [])
    pairs = ask(worker, "GET", "/connectors/f/offsets")[1]["offsets"]
    assert pairs == [{"partition": {"filename": config["file"]}, "offset": {"position": 4}}]
    pairs[0]["offset"]["position"] = 2
    assert "altered successfully" in ask(worker, "PATCH", "/connectors/f/offsets", {"offsets": pairs})[1]["message"]
    assert "reset successfully" in ask(worker, "DELETE", "/connectors/f/offsets")[1]["message"]
    assert ask(worker, "DELETE", "/connectors/f") == (204, None)
    until(lambda: ask(worker, "GET", "/connectors/f/status")[0] == 404)


def test_loggers_and_errors_by_the_requests_of_kcctl(worker):
    assert ask(worker, "PUT", "/admin/loggers/org.example", {"level": "DEBUG"}) == (200, ["org.example"])
    assert ask(worker, "PUT", "/admin/loggers/org.example?scope=cluster", {"level": "WARN"}) == (204, None)
    until(lambda: ask(worker, "GET", "/admin/loggers/org.example")[1]["level"] == "WARN")
    assert "root" in ask(worker, "GET", "/admin/loggers/")[1]
    status, error = ask(worker, "GET", "/connectors/nope")
    assert (status, error) == (404, {"error_code": 404, "message": "Connector nope not found"})
