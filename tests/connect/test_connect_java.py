"""`penstock connect java`: Apache's own worker as a child process, connectors by coordinate; errors without Java."""

import json
import signal
import subprocess
import sys
import urllib.request

import psutil
import pytest
from typer.testing import CliRunner

from brokers import running_broker
from connect_group import eventually
from penstock.cli.main import app
from penstock.errors import ConfigError
from penstock.log import open_log
from penstock.tools.broker.broker_settings import free_port
from penstock.tools.broker.java_worker import parse_coordinates

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "connect", "java"]
FILE = "org.apache.kafka:connect-file:4.3.1"
quiet = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("text", ["connect-file", "a:b", "a:b:c:d", "a:../b:1", "a b:c:1", ""])
def test_a_wrong_coordinate_is_named(text):
    with pytest.raises(ConfigError, match="is not a Maven coordinate"):
        parse_coordinates(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.properties"], "none.properties cannot be read"),
        (["--set", "bootstrap.servers=sqlite:///connect.db"], "Java's worker needs a Kafka cluster"),
        (["--packages", "connect-file"], "is not a Maven coordinate"),
        (["--set", "x"], "is not NAME=VALUE"),
    ],
)
def test_wrong_input_is_named(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["connect", "java", *arguments])
    assert done.exit_code != 0
    assert message in str(done.exception)


def test_without_java_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["connect", "java"])
    assert "Java is missing" in str(done.exception)
    assert not list(tmp_path.iterdir())


def ask(port, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")
    except OSError:
        return None


def values(log, topic):
    if topic not in {info.name for info in log.topics()}:
        return []
    return [row["value"] for row in log.read(topic, 0, log.beginning_offset(topic, 0)).records.to_pylist()]


def started(servers, tmp_path, *more):
    port = free_port()
    string = "org.apache.kafka.connect.storage.StringConverter"
    settings = {
        "bootstrap.servers": servers, "listeners": f"http://127.0.0.1:{port}", "key.converter": string,
        "value.converter": string, "group.id": f"java-{port}", "offset.flush.interval.ms": "500",
        **{f"{name}.storage.topic": f"java-{port}-{name}" for name in ("config", "offset", "status")},
        **{f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")},
    }  # fmt: skip
    file = tmp_path / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with (tmp_path / "out.log").open("wb") as out:
        process = subprocess.Popen([*COMMAND, str(file), *more], stdout=out, stderr=out, cwd=tmp_path)
    eventually(lambda: ask(port, "GET", "/connectors") is not None, 180, "the worker answers")
    return process, port


@pytest.mark.whole
@pytest.mark.filterwarnings(*[mark.args[0] for mark in quiet])
def test_java_connectors_run_by_coordinate_and_end_with_the_command(tmp_path):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    with running_broker(tmp_path / "kafka") as broker, open_log(broker.settings.bootstrap_servers) as log:
        servers = broker.settings.bootstrap_servers
        process, port = started(servers, tmp_path, "--packages", FILE)
        source = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(tmp_path / "in.txt"), "topic": "lines",
        }  # fmt: skip
        sink = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": str(tmp_path / "out.txt"), "topics": "lines",
        }  # fmt: skip
        for name, config in (("in", source), ("out", sink)):
            eventually(
                lambda name=name, config=config: ask(port, "POST", "/connectors", {"name": name, "config": config}),
                60, f"{name} is created",
            )  # fmt: skip
        eventually(lambda: values(log, "lines") == [b"one", b"two"], 60, "the lines are in the topic")
        wanted = "one\ntwo\n"
        eventually(lambda: (tmp_path / "out.txt").exists() and (tmp_path / "out.txt").read_text() == wanted, 60, "out")
        [java] = [each for each in psutil.Process(process.pid).children() if "java" in each.name()]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not java.is_running()

        (tmp_path / "in.properties").write_text(
            "".join(f"{name}={value}\n" for name, value in {**source, "name": "in", "topic": "again"}.items())
        )
        process, _ = started(
            servers, tmp_path, "in.properties", "--set", f"offset.storage.file.filename={tmp_path / 'offsets'}"
        )
        eventually(lambda: values(log, "again") == [b"one", b"two"], 60, "a standalone worker copies")
        [java] = [each for each in psutil.Process(process.pid).children() if "java" in each.name()]
        process.kill()
        process.wait()
        eventually(lambda: not java.is_running() or java.status() == psutil.STATUS_ZOMBIE, 10, "Java ends as well")
