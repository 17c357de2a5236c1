"""The requests of `ConnectRestApiTest` of Kafka's system tests (`connect_rest_test`), and what it expects of the answers."""

from pathlib import Path

from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from test_connect_worker import FILE_SINK, FILE_SOURCE, ask, settings, task_state, until

JSON = "org.apache.kafka.connect.json.JsonConverter"
ALWAYS = {"name", "connector.class", "tasks.max", "key.converter", "value.converter", "file"}


def test_the_requests_of_kafkas_own_test_of_the_rest_api(tmp_path):
    ways = {"key.converter": JSON, "value.converter": JSON, "tasks.in.process": "true"}
    worker = WorkerServer(WorkerConfig.of(settings(tmp_path, **ways), "distributed"))
    worker.start()
    try:
        assert worker.wait_until_ready(30)
        use(worker, tmp_path)
    finally:
        worker.stop()


def use(worker, folder):
    first, second, out = (str(folder / name) for name in ("input", "input2", "output"))
    common = {"tasks.max": "1", "name": "local-file-source", "connector.class": FILE_SOURCE}
    source = {**common, "file": first, "topic": "test"}
    sink = {**common, "name": "local-file-sink", "connector.class": FILE_SINK, "file": out, "topics": "test"}

    assert ask(worker, "GET", "/connectors") == (200, [])
    plugins = {plugin["class"] for plugin in ask(worker, "GET", "/connector-plugins")[1]}
    assert plugins >= {FILE_SOURCE, FILE_SINK}

    for config, topic in ((source, "topic"), (sink, "topics")):
        kind = config["connector.class"]
        status, found = ask(worker, "PUT", f"/connector-plugins/{kind}/config/validate", config)
        assert (status, found["name"], found["error_count"]) == (200, kind, 0)
        assert {each["definition"]["name"] for each in found["configs"]} >= ALWAYS | {topic}
        assert ask(worker, "POST", "/connectors", {"name": config["name"], "config": config})[0] == 201
    until(lambda: set(ask(worker, "GET", "/connectors")[1]) == {"local-file-source", "local-file-sink"})
    until(lambda: all(task_state(worker, each) == "RUNNING" for each in ("local-file-source", "local-file-sink")))

    (folder / "input").write_text("foo\nbar\nbaz\n")
    until(lambda: lines(out) == {"foo", "bar", "baz"})
    assert ask(worker, "POST", "/connectors", {"name": "local-file-source", "config": source})[0] == 409

    for config, kind in ((source, "source"), (sink, "sink")):
        name = config["name"]
        info = {"name": name, "config": config, "tasks": [{"connector": name, "task": 0}], "type": kind}
        assert ask(worker, "GET", f"/connectors/{name}") == (200, info)
        assert ask(worker, "GET", f"/connectors/{name}/config") == (200, config)
        (task,) = ask(worker, "GET", f"/connectors/{name}/tasks")[1]
        assert task["id"] == {"connector": name, "task": 0}
        wanted = {"task.class": config["connector.class"].replace("Connector", "Task"), "file": config["file"]}
        assert task["config"].items() >= wanted.items()

    assert ask(worker, "PUT", "/connectors/local-file-source/config", {**source, "file": second})[0] == 200
    (folder / "input2").write_text("foo\nbar\nbaz\nrazz\nma\ntazz\n")
    until(lambda: lines(out) == {"foo", "bar", "baz", "razz", "ma", "tazz"})
    for name in ("local-file-source", "local-file-sink"):
        assert ask(worker, "DELETE", f"/connectors/{name}") == (204, None)
    until(lambda: ask(worker, "GET", "/connectors") == (200, []))


def lines(path):
    try:
        return set(Path(path).read_text().splitlines())
    except FileNotFoundError:
        return set()
