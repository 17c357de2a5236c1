"""`penstock connect apply` and `tap` against a worker over an embedded log."""

import json

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.connect.rest import WorkerServer
from penstock.connect.worker_client import ConnectClient, make_plan
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import ConfigError, ConnectError
from test_connect_worker import settings as worker_settings
from test_connect_worker import until

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("worker")
    server = WorkerServer(WorkerConfig.of(worker_settings(folder), "distributed"))
    server.start()
    assert server.wait_until_ready(180)
    server.folder = folder
    yield server
    server.stop()


def penstock(*arguments):
    return CliRunner().invoke(app, ["connect", *map(str, arguments)])


def url(worker):
    return f"http://127.0.0.1:{worker.port}"


@pytest.fixture
def opened(worker):
    with ConnectClient(url(worker)) as made:
        yield made


def test_a_folder_is_applied_after_its_plan_and_a_second_time_nothing_changes(worker, opened, tmp_path):
    lines = worker.folder / "lines.txt"
    lines.write_text("a\nb\n")
    files = tmp_path / "connectors"
    files.mkdir()
    (files / "lines.yaml").write_text(f"connector.class: {SOURCE}\nfile: {lines}\ntopic: lines\n")
    shown = penstock("apply", files, "--url", url(worker), "--dry-run")
    assert (shown.exit_code, "create lines" in shown.output, "+ topic=lines" in shown.output) == (0, True, True)
    client = opened
    assert client.configs() == {}
    assert penstock("apply", files, "--url", url(worker), "--yes").exit_code == 0
    assert client.config("lines")["topic"] == "lines"
    again = penstock("apply", files, "--url", url(worker))
    assert (again.exit_code, again.output.strip()) == (0, "unchanged lines")

    log = f"sqlite:///{worker.folder}/log.db"
    until(lambda: client.topics("lines") == ["lines"])
    seen = penstock("tap", "lines", "--url", url(worker), "-b", log, "--from-start", "-n", "2", "--json")
    assert seen.exit_code == 0, seen.output
    assert '"value": "a"' in seen.output
    assert '"value": "b"' in seen.output

    (files / "lines.yaml").unlink()
    kept = penstock("apply", tmp_path / "none", "--url", url(worker))
    assert (kept.exit_code, "does not exist" in str(kept.exception)) == (1, True)
    (files / "other.json").write_text(json.dumps({"connector.class": SOURCE, "topic": "x", "tasks.max": "none"}))
    wrong = penstock("apply", files, "--url", url(worker), "--yes", "--prune")
    assert isinstance(wrong.exception, ConfigError)
    assert "tasks.max" in wrong.exception.message
    assert set(client.configs()) == {"lines"}  # nothing was changed
    (files / "other.json").write_text(json.dumps({"connector.class": SOURCE, "topic": "x", "file": str(lines)}))
    assert penstock("apply", files, "--url", url(worker), "--yes", "--prune").exit_code == 0
    assert set(client.configs()) == {"other"}


def test_a_worker_that_is_away_and_a_connector_that_is_not_there_are_named(opened):
    far = ConnectClient("http://me:secret@127.0.0.1:9")
    with far, pytest.raises(ConnectError, match="cannot be reached") as caught:
        far.configs()
    assert "secret" not in caught.value.message
    with pytest.raises(ConnectError, match="404"):
        opened.config("nobody")
    with pytest.raises(ConfigError, match="not the URL"):
        ConnectClient("localhost:8083")


def test_a_plan_hides_secrets_and_orders_changes():
    old = {"b": {"connection.password": "x", "connection.url": "postgresql://me:x@host/db"}, "gone": {}}
    new = {"b": {"connection.password": "y", "connection.url": "postgresql://me:y@host/db"}, "a": {"n": "1"}}
    plan = make_plan(new, old, prunes=True)
    assert [(change.action.value, change.name) for change in plan.changes] == [
        ("create", "a"),
        ("change", "b"),
        ("delete", "gone"),
    ]
    shown = "\n".join(plan.changes[1].lines)
    assert "connection.password=[hidden]" in shown
    assert "me:y" not in shown
