"""`penstock connect run` and `penstock connect dry-run`, as a user calls them."""

import json
import textwrap

import pytest
from typer.testing import CliRunner

from penstock.cli.connect.run_connector import read_connector
from penstock.cli.main import app
from penstock.errors import ConfigError
from penstock.log.open import open_log

CONNECTOR = """
    from penstock.connect.functions import Record, sink, source

    @source("Letters", topic=str)
    def letters(settings, offsets):
        first = offsets.get({"of": "letters"}, {"at": 0})["at"]
        for at, letter in enumerate("abc"[first:], first):
            yield Record(settings.topic, {"letter": letter}, partition={"of": "letters"}, offset={"at": at + 1})

    @sink("Appended", file=str)
    def appended(settings, batch):
        with open(settings.file, "a") as file:
            file.writelines(f"{record.value['letter']}\\n" for record in batch)
"""
SOURCE = """
    connector.class: mine.py:letters
    topic: letters
    transforms:
      source:
        type: org.apache.kafka.connect.transforms.InsertField$Value
        static: {field: from, value: here}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(textwrap.dedent(CONNECTOR))
    (tmp_path / "letters.yaml").write_text(textwrap.dedent(SOURCE))
    sink_config = {
        "name": "w",
        "config": {"connector.class": "mine.py:appended", "topics": "letters", "file": "out.txt"},
    }
    (tmp_path / "sink.json").write_text(json.dumps(sink_config))
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, ["connect", *arguments], catch_exceptions=True)


def test_a_source_and_a_sink_run_once_each_and_go_on_where_they_stopped(folder):
    assert call("run", "letters.yaml", "--once").exit_code == 0
    again = call("run", "letters.yaml", "--once")
    assert again.exit_code == 0
    assert call("run", "sink.json", "--once").exit_code == 0
    assert call("run", "sink.json", "--once").exit_code == 0
    assert (folder / "out.txt").read_text() == "a\nb\nc\n"
    with open_log(str(folder / "penstock.db")) as log:
        values = log.read("letters", 0, 0).records.column("value").to_pylist()
    assert json.loads(values[0]) == {"letter": "a", "from": "here"}


def test_a_dry_run_shows_each_step_and_writes_nothing(folder):
    shown = call("dry-run", "letters.yaml", "-n", "2")
    assert shown.exit_code == 0, shown.output
    assert "record 2" in shown.output
    assert "record 3" not in shown.output
    assert 'transforms.source: {"topic": "letters", "value": {"letter": "a", "from": "here"}}' in shown.output
    with open_log(str(folder / "penstock.db")) as log:
        assert log.topics() == []
    call("run", "letters.yaml", "--once")
    rows = call("dry-run", "sink.json", "--json")
    assert "letters-0, offset 0" in rows.output
    assert not (folder / "out.txt").exists()
    with open_log(str(folder / "penstock.db")) as log:
        assert log.committed_offsets("connect-w") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topic: x\n", "connector.class is missing"),
        ("connector.class: mine.py:letters\n", 'Missing required configuration "topic"'),
        ("connector.class: nothing\n", "there is no connector 'nothing'"),
        ("connector.class: mine.py:nothing\n", "has no 'nothing'"),
        ("connector.class: mine.py:letters\ntopic: x\ntasks.max: many\n", "Not a number of type INT"),
        ("- a\n- b\n", "holds no settings"),
        ("a: [\n", "has an error"),
    ],
)
def test_a_wrong_file_is_one_clear_error(folder, text, message):
    (folder / "wrong.yaml").write_text(text)
    for command in ("run", "dry-run"):
        result = call(command, "wrong.yaml")
        assert result.exit_code == 1
        assert message in str(result.exception)


def test_files_of_every_kind_are_read(tmp_path):
    for name, text in {
        "a.properties": "connector.class=X\ntopics=t\n",
        "a.json": '{"connector.class": "X", "topics": ["t"]}',
        "a.toml": '"connector.class" = "X"\ntopics = "t"\n',
        "a.yml": "connector: {class: X}\ntopics: [t]\n",
    }.items():
        path = tmp_path / name
        path.write_text(text)
        assert read_connector(path) == {"connector.class": "X", "topics": "t", "name": "a"}
    with pytest.raises(ConfigError, match="cannot be read"):
        read_connector(tmp_path / "none.yaml")


def test_the_list_of_connectors_names_those_that_are_installed():
    result = call("list", "--json")
    assert result.exit_code == 0
    names = {each["class"] for each in json.loads(result.output)}
    assert {"WebhookSink", "org.apache.kafka.connect.file.FileStreamSourceConnector"} <= names


def test_the_transformations_of_a_worker_are_there_without_one(folder):
    unwrapped = SOURCE.replace("org.apache.kafka.connect.transforms.InsertField$Value", "%s").replace(
        "static: {field: from, value: here}", "add.fields: op"
    )
    (folder / "unwrapped.yaml").write_text(textwrap.dedent(unwrapped) % "io.debezium.transforms.ExtractNewRecordState")
    shown = call("dry-run", "unwrapped.yaml", "-n", "1")
    assert shown.exit_code == 0, shown.output + str(shown.exception)
