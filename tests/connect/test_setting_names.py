"""Names in a connector's config: settings of the model that are refused, those without effect, and unknown ones."""

import json

import pytest

from penstock.connect.config import Model, Refused
from penstock.connect.connectors import known_plugins
from penstock.connect.data import SettingError
from penstock.connect.delivery.local_run import check_config
from penstock.connect.plugins import check_names, start_notes, validate_connector
from penstock.connect.testing import ConnectTestDriver

FILE = {"name": "f", "connector.class": "FileStreamSource", "file": "a", "topic": "t"}
SEARCH = {
    "name": "s",
    "connector.class": "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
    "topics": "t",
    "connection.url": "http://localhost:9200",
}


@pytest.fixture(scope="module")
def plugins():
    return known_plugins()


def test_a_setting_of_the_model_that_is_not_there_is_refused_by_validation(plugins):
    body = validate_connector({**SEARCH, "data.stream.type": "logs"}, plugins)
    entry = next(each for each in body["configs"] if each["value"]["name"] == "data.stream.type")
    assert entry["definition"] is None
    assert body["error_count"] == 1
    assert entry["value"]["errors"][0].startswith(
        "data.stream.type is a setting of Confluent's sink to Elasticsearch that this connector does not have. It "
    )


def test_it_is_refused_by_a_run_and_by_the_test_driver_too(plugins):
    with pytest.raises(SettingError, match=r"proxy\.host is a setting of Confluent's sink"):
        check_config({**SEARCH, "proxy.host": "p"}, plugins)
    with pytest.raises(SettingError, match=r"proxy\.host is a setting of Confluent's sink"):
        ConnectTestDriver(SEARCH["connector.class"], {**SEARCH, "proxy.host": "p"}, plugins=plugins)


def test_a_refusal_does_not_show_the_value_which_may_be_a_secret(plugins):
    refused = check_names({**SEARCH, "proxy.password": "hunter2"}, plugins).refused
    assert "hunter2" not in refused["proxy.password"]


def test_a_value_by_which_the_model_does_the_same_is_taken(plugins):
    taken = {**SEARCH, "schema.ignore": "TRUE", "compact.map.entries": "true", "drop.invalid.message": "false"}
    found = check_names(taken, plugins)
    assert (found.refused, found.notes) == ({}, [])
    assert list(check_names({**SEARCH, "schema.ignore": "false"}, plugins).refused) == ["schema.ignore"]


def test_a_setting_that_changes_nothing_is_noted_with_its_reason(plugins):
    (note,) = check_names({**SEARCH, "linger.ms": "5"}, plugins).notes
    assert note.startswith("linger.ms has no effect: each task sends one request")


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ({"batch.sise": "5"}, "batch.sise is not a setting of org.apache.kafka.connect.file.FileStreamSourceConnector, and has"),
        ({"batch.sise": "5"}, "no effect. Did you mean batch.size?"),
        ({"Topic": "u"}, "Did you mean topic?"),
        ({"batch_size": "5"}, "Did you mean batch.size?"),
        ({"value.converter.schemas.enable": "false"}, "has no effect without value.converter"),
        ({"transforms": "a", "transforms.a.type": "HoistField$Value", "transforms.a.field": "x", "transforms.b.field": "y"},
         "transforms.b.field has no effect: transforms does not name 'b'."),
        ({"predicates.p.type": "RecordIsTombstone"}, "predicates does not name 'p'"),
        ({"producer.override.lingr.ms": "5"}, "Did you mean producer.linger.ms?"),
        ({"topic.creation.logs.partitions": "3"}, "topic.creation.groups of a source does not name 'logs'"),
        ({"topics": "t"}, "topics is not a setting of"),
        ({"offsets.storage.topic": "own"}, "offsets.storage.topic has no effect: "),
    ],
)  # fmt: skip
def test_a_name_that_nothing_reads_is_noted(plugins, more, note):
    found = check_names({**FILE, **more}, plugins)
    assert found.refused == {}
    assert len(found.notes) == 1
    assert note in found.notes[0]


def test_names_of_parts_are_checked_by_their_own_definitions(plugins):
    chain = {"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.transforms.MaskField$Value"}
    given = {**FILE, **chain, "transforms.a.fields": "x", "transforms.a.replacment": "y", "transforms.a.negate": "true"}
    given["value.converter"] = "org.apache.kafka.connect.json.JsonConverter"
    given["value.converter.schema.enable"] = "false"
    notes = check_names(given, plugins).notes
    assert [note.partition(" is ")[0] for note in notes] == ["value.converter.schema.enable", "transforms.a.replacment"]
    assert all("Did you mean" in note for note in notes)


def test_what_is_read_is_not_noted(plugins):
    given = {
        **FILE,
        "restart.policy": "on-failure",
        "errors.deadletterqueue.topic.name": "dead",
        "topic.creation.groups": "logs",
        "topic.creation.default.partitions": "1",
        "topic.creation.logs.include": "x",
        "topic.creation.logs.cleanup.policy": "compact",
        "producer.override.linger.ms": "5",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "key.converter.converter.encoding": "UTF-8",
        "predicates": "p",
        "predicates.p.type": "RecordIsTombstone",
    }
    assert check_names(given, plugins).notes == []
    spark = {"name": "s", "connector.class": "SparkSourceConnector", "spark.format": "rate", "topic": "t"}
    assert check_names({**spark, "spark.option.rowsPerSecond": "1"}, plugins).notes == []


def test_connectors_without_recorded_truth_say_that_they_are_experimental(plugins):
    spark = {"name": "s", "connector.class": "SparkSinkConnector", "topics": "t"}
    (note,) = start_notes(spark, plugins)
    assert note.startswith("connector s: SparkSinkConnector is experimental:")
    assert start_notes(SEARCH, plugins) == start_notes(FILE, plugins) == []


def test_a_worker_logs_the_notes_when_the_connector_starts(tmp_path, caplog):
    from penstock.connect.worker.worker import Worker
    from penstock.connect.worker_settings import WorkerConfig

    (tmp_path / "a").write_text("one\n")
    converter = "org.apache.kafka.connect.json.JsonConverter"
    given = {"bootstrap.servers": f"sqlite:///{tmp_path}/log.db"}
    given |= {"key.converter": converter, "value.converter": converter}
    given |= {"offset.storage.file.filename": str(tmp_path / "offsets"), "tasks.in.process": "true"}
    worker = Worker(WorkerConfig.of(given, "standalone"), "me:1")
    worker.start()
    try:
        worker.operations.create("f", {**FILE, "file": str(tmp_path / "a"), "batch.sise": "5"}, None)
        lines = [each.getMessage() for each in caplog.records if "batch.sise" in each.getMessage()]
    finally:
        worker.stop()
    assert len(lines) == 1
    assert lines[0].startswith("connector f: batch.sise is not a setting of ")


def test_a_model_knows_families_of_names():
    model = Model("M", {"a.": "No.", "b": Refused("No.", unless=("1",))}, {"c.": "none."}, own=("d.",))
    assert [model.has(name) for name in ("a.x", "b", "c.x", "d.x", "d.", "e")] == [True, True, True, True, False, False]
    assert model.refusal("a.x", None).startswith("a.x is a setting of M")
    assert model.refusal("b", "1") is None


def test_which_connectors_are_experimental_is_in_the_lists(plugins):
    from typer.testing import CliRunner

    from penstock.cli.main import app
    from penstock.connect.plugins import PluginKind

    found = {p.simple_name: p.experimental for p in plugins.of_kind(PluginKind.SOURCE, PluginKind.SINK)}
    assert {name for name, experimental in found.items() if not experimental} == {
        "DatagenConnector",
        "DeltaSink",
        "DeltaSource",
        "ElasticsearchSinkConnector",
        "FileStreamSourceConnector",
        "FileStreamSinkConnector",
        "HttpSource",
        "IcebergSink",
        "IcebergSource",
        "JdbcSinkConnector",
        "JdbcSourceConnector",
        "MirrorSourceConnector",
        "MirrorCheckpointConnector",
        "MirrorHeartbeatConnector",
        "ObjectSink",
        "PostgresConnector",
        "WebhookSink",
    }
    listed = CliRunner().invoke(app, ["connect", "list", "--json"]).output
    shown = {each["class"]: each["experimental"] for each in json.loads(listed)}
    assert shown["SparkSinkConnector"] is True
    assert shown["org.apache.kafka.connect.file.FileStreamSinkConnector"] is False
