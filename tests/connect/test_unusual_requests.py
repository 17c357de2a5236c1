"""Requests at the edges of the REST interface, with the answers that a worker of Kafka Connect 4.3.1 gave to them."""

import http.client
import json

import pytest

from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from test_connect_worker import ask, task_state, until
from test_connect_worker import settings as worker_settings

SOURCE, SINK = "FileStreamSource", "FileStreamSink"
TRANSFORMS = "org.apache.kafka.connect.transforms."
AT_FAULT = "not found that matches the version range [9,9], available versions: [4.3.1]"


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unusual")
    given = {"tasks.in.process": "true", "group.id": "connect-own"}
    server = WorkerServer(WorkerConfig.of(worker_settings(folder, **given), "distributed"))
    server.start()
    assert server.wait_until_ready(180)
    (folder / "in.txt").write_text("a\n")
    config = {"connector.class": SOURCE, "file": str(folder / "in.txt"), "topic": "lines"}
    assert ask(server, "POST", "/connectors", {"name": "f", "config": config})[0] == 201
    server.config = config
    yield server
    server.stop()


def validated(worker, plugin, /, **config):
    """The settings that have errors, with them."""
    status, body = ask(
        worker, "PUT", f"/connector-plugins/{plugin}/config/validate", {"connector.class": plugin, **config}
    )
    assert status == 200
    found = {entry["value"]["name"]: entry["value"]["errors"] for entry in body["configs"] if entry["value"]["errors"]}
    assert body["error_count"] == sum(map(len, found.values()))
    return found, body


@pytest.mark.parametrize("query", ["", "nope", "STATUS"])
def test_an_expansion_that_is_not_known_leaves_the_names(worker, query):
    assert ask(worker, "GET", f"/connectors?expand={query}") == (200, {"f": {}})


@pytest.mark.parametrize("accept", ["*", "", "application/*;q=0.5", "text/html, application/json"])
def test_headers_that_accept_json(worker, accept):
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
    connection.request("GET", "/connectors", headers={"Accept": accept})
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, ["f"])
    connection.close()


def test_all_plugins_are_listed_by_their_types(worker):
    found = ask(worker, "GET", "/connector-plugins?connectorsOnly=no")[1]
    kinds = list(dict.fromkeys(plugin["type"] for plugin in found))
    assert kinds == ["sink", "source", "transformation", "predicate", "converter", "header_converter"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("FileConfigProvider", 400),
        ("All", 400),
        ("java.util.ArrayList", 500),
        ("Nope", 404),
        (f"{TRANSFORMS}Cast", 500),
    ],
)
def test_settings_of_what_is_no_plugin_of_a_connector(worker, name, status):
    assert ask(worker, "GET", f"/connector-plugins/{name}/config")[0] == status


def test_numbers_of_a_config_stay_as_they_are_written(worker):
    config = {**worker.config, "name": "n", "ratio": 1.50, "large": 123456789.0}
    body = json.dumps(config).replace("1.5", "1.50").encode()
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
    connection.request("PUT", "/connectors/n/config", body, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert (answer["config"]["ratio"], answer["config"]["large"]) == ("1.50", "123456789.0")
    assert ask(worker, "DELETE", "/connectors/n")[0] == 204


def test_a_name_that_is_null_is_the_one_of_the_path(worker):
    status, body = ask(worker, "PUT", "/connectors/f/config", {**worker.config, "name": None})
    assert (status, body["config"]["name"]) == (200, "f")


def test_a_connector_that_is_not_there_goes_before_a_patch_without_body(worker):
    assert ask(worker, "PATCH", "/connectors/nope/config")[0] == 404
    assert ask(worker, "PATCH", "/connectors/f/config")[0] == 500


@pytest.mark.parametrize(
    ("kind", "java_class"),
    [("transforms", f"{TRANSFORMS}Filter"), ("predicates", f"{TRANSFORMS}predicates.RecordIsTombstone")],
)
def test_a_part_of_another_version_is_an_error_of_both_settings(worker, kind, java_class):
    config = {kind: "a", f"{kind}.a.type": java_class, f"{kind}.a.plugin.version": "9"}
    found, body = validated(worker, SOURCE, topic="t", name="x", **config)
    assert set(found) == {f"{kind}.a.type", f"{kind}.a.plugin.version"}
    assert set(map(tuple, found.values())) == {(f"Plugin {java_class} {AT_FAULT}",)}
    assert f"{kind}.a.negate" not in {entry["value"]["name"] for entry in body["configs"]}
    assert ask(worker, "POST", "/connectors", {"name": "v", "config": {**worker.config, **config}})[0] == 400


def test_a_sink_cannot_have_the_group_of_the_workers(worker):
    found, _ = validated(worker, SINK, name="own", topics="t")
    text = "Consumer group for sink connector named own conflicts with Connect worker group connect-own"
    assert found == {"name": [text]}
    found, _ = validated(worker, SINK, name="x", topics="t", **{"consumer.override.group.id": "connect-own"})
    text = "Consumer group connect-own conflicts with Connect worker group connect-own"
    assert found == {"consumer.override.group.id": [text]}
    assert validated(worker, SINK, name="x", topics="t", **{"consumer.override.group.id": "mine"})[0] == {}


def test_classes_that_neither_java_nor_kafka_has(worker):
    path = f"/connector-plugins/{SOURCE}/config/validate"
    config = {"connector.class": SOURCE, "name": "x", "topic": "t", "producer.override.partitioner.class": "Nope"}
    assert ask(worker, "PUT", path, config)[1]["message"].endswith("Class Nope could not be found.")
    assert ask(worker, "PUT", path, {**config, "producer.override.partitioner.class": "org.apache.kafka.P"})[0] == 200
    found, _ = validated(worker, SOURCE, topic="t", name="x", **{"header.converter": "java.lang.String"})
    text = "Class class java.lang.String does not implement the HeaderConverter interface"
    assert found == {"header.converter": [text]}
    mirror = {"name": "m", "source.cluster.alias": "a", "replication.policy.class": "Nope"}
    assert list(validated(worker, "MirrorSource", **mirror)[0]) == ["replication.policy.class"]


def test_an_alias_of_topics_that_comes_twice(worker):
    config = {"topic.creation.groups": "a,a", "topic.creation.default.partitions": "1"}
    found, _ = validated(worker, SOURCE, topic="t", name="x", **config)
    text = "Invalid value [a, a] for configuration topic.creation.groups: Duplicate alias provided."
    assert found["topic.creation.groups"] == [text]


def test_the_root_logger_in_any_case(worker):
    assert ask(worker, "GET", "/admin/loggers/ROOT") == ask(worker, "GET", "/admin/loggers/root")
    assert ask(worker, "PUT", "/admin/loggers/a.b", {"level": " debug ", "more": "x"}) == (200, ["a.b"])


def test_the_answer_to_a_restart_says_why_a_task_has_failed(worker):
    cast = {"transforms": "c", "transforms.c.type": f"{TRANSFORMS}Cast$Value", "transforms.c.spec": "int8"}
    assert ask(worker, "POST", "/connectors", {"name": "b", "config": {**worker.config, **cast}})[0] == 201
    until(lambda: task_state(worker, "b") == "FAILED")
    status, body = ask(worker, "POST", "/connectors/b/restart?includeTasks=true&onlyFailed=true")
    assert (status, body["tasks"][0]["state"]) == (202, "RESTARTING")
    assert "Tolerance exceeded in error handler" in body["tasks"][0]["trace"]
    assert ask(worker, "DELETE", "/connectors/b")[0] == 204


def test_a_task_that_a_stopped_connector_has_had_is_known_but_nobody_has_it(worker):
    until(lambda: task_state(worker, "f") == "RUNNING")
    assert ask(worker, "PUT", "/connectors/f/stop")[0] == 204
    until(lambda: ask(worker, "GET", "/connectors/f/tasks")[1] == [])
    until(lambda: ask(worker, "POST", "/connectors/f/tasks/0/restart")[0] == 409)
    assert ask(worker, "POST", "/connectors/f/tasks/7/restart")[0] == 404
    nested = {"offsets": [{"partition": {"filename": "x"}, "offset": {"position": {"x": 1}}}]}
    status, body = ask(worker, "PATCH", "/connectors/f/offsets", nested)
    assert (status, body["message"]) == (
        500,
        "Offsets may only contain primitive types as values, but field position contains MAP",
    )
