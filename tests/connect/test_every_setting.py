"""A walk over all settings of connectors, converters, transformations, predicates and workers.

Each one is obeyed (a test or a recorded case sets it), or refused with a sentence that names it, or named in a line at
the start because it changes nothing. None is accepted and ignored.
"""

import pytest

from penstock.connect.connectors import known_plugins
from penstock.connect.data import SettingError
from penstock.connect.plugins import PluginKind, check_names
from penstock.connect.plugins.connector_definition import COMMON, RESTARTS, SINK, SOURCE, plain_settings
from penstock.connect.plugins.validating import FRAMEWORK
from penstock.connect.worker_settings import WORKER_MODEL, WorkerConfig, worker_definition
from penstock.errors import ConfigError
from settings_evidence import proving_tests, recorded, recorded_by_debezium

PLUGINS = known_plugins()
ALL = PLUGINS.of_kind(*PluginKind)
OF_ALL = {"converter.type", *(setting.name for setting in plain_settings())}
CONNECTORS = PLUGINS.of_kind(PluginKind.SOURCE, PluginKind.SINK)


def is_kafkas(plugin):
    return plugin.java_class.startswith("org.apache.kafka")


@pytest.mark.parametrize("plugin", ALL, ids=lambda plugin: plugin.java_class.rpartition(".")[2])
def test_each_setting_of_a_plugin_is_obeyed_or_named_at_the_start(plugin):
    unproven = []
    for setting in plugin.config:
        if setting.name in OF_ALL or plugin.model.idleness(setting.name):
            continue
        evidence = recorded(setting.name) if is_kafkas(plugin) else []
        if plugin.java_class.startswith("io.debezium"):
            evidence = recorded_by_debezium(setting.name)
        if not (evidence or proving_tests(setting.name)):
            unproven.append(setting.name)
    assert not unproven


@pytest.mark.parametrize("setting", [*COMMON, *SOURCE, *SINK, *RESTARTS], ids=lambda setting: setting.name)
def test_each_setting_of_all_connectors_is_obeyed_or_named_at_the_start(setting):
    assert FRAMEWORK.idleness(setting.name) or recorded(setting.name) or proving_tests(setting.name)


@pytest.mark.parametrize("mode", ["distributed", "standalone"])
def test_each_setting_of_a_worker_is_obeyed_or_named_at_the_start(mode):
    names = [setting.name for setting in worker_definition(mode)]
    assert not [name for name in names if not (WORKER_MODEL.idleness(name) or recorded(name) or proving_tests(name))]


@pytest.mark.parametrize("plugin", CONNECTORS, ids=lambda plugin: plugin.java_class.rpartition(".")[2])
def test_each_setting_of_the_model_is_refused_or_named_at_the_start(plugin):
    for name in plugin.model.refused:
        full = f"{name}x" if name.endswith(".") else name
        refused = check_names({"connector.class": plugin.java_class, full: "?"}, PLUGINS).refused
        assert refused[full].startswith(f"{full} is a setting of {plugin.model.software} that this connector does not")
    for name in plugin.model.idle:
        full = f"{name}x" if name.endswith(".") else name
        (note,) = check_names({"connector.class": plugin.java_class, full: "?"}, PLUGINS).notes
        assert note.startswith(f"{full} has no effect: ")


@pytest.mark.parametrize("plugin", PLUGINS.of_kind(PluginKind.CONVERTER), ids=lambda each: each.simple_name)
def test_each_setting_of_a_converters_model_is_refused_or_named_at_the_start(plugin):
    source = {"connector.class": "FileStreamSource", "value.converter": plugin.java_class}
    for name in plugin.model.refused:
        full = f"value.converter.{name}x" if name.endswith(".") else f"value.converter.{name}"
        assert full in check_names({**source, full: "?"}, PLUGINS).refused
    for name in plugin.model.idle:
        full = f"value.converter.{name}"
        (note,) = check_names({**source, full: "?"}, PLUGINS).notes
        assert note.startswith(f"{full} has no effect: ")


def test_each_setting_of_kafkas_workers_is_refused_or_named_at_the_start():
    converter = "org.apache.kafka.connect.storage.StringConverter"
    given = {"offset.storage.file.filename": "o", "key.converter": converter, "value.converter": converter}
    for name in WORKER_MODEL.refused:
        full = f"{name}x" if name.endswith(".") else name
        with pytest.raises(ConfigError, match=full.replace(".", r"\.")):
            WorkerConfig.of({**given, full: "?"}, "standalone")
    for name in WORKER_MODEL.idle:
        full = f"{name}x" if name.endswith(".") else name
        (note,) = WorkerConfig.of({**given, full: "1"}, "standalone").notes(PLUGINS)
        assert note.startswith(f"{full} has no effect: ")


def test_a_workers_converters_are_looked_at_too():
    given = {"offset.storage.file.filename": "o", "key.converter": "org.apache.kafka.connect.json.JsonConverter"}
    given |= {"value.converter": given["key.converter"], "value.converter.schemas.enabel": "false"}
    (note,) = WorkerConfig.of(given, "standalone").notes(PLUGINS)
    assert note == (
        "value.converter.schemas.enabel is not a setting of org.apache.kafka.connect.json.JsonConverter, and has no effect. "
        "Did you mean schemas.enable?"
    )


def test_no_setting_is_defined_and_refused_alike():
    for plugin in ALL:
        twice = set(plugin.config.settings) & {name for name in plugin.model.refused if not name.endswith(".")}
        assert not twice, plugin.java_class


def test_a_setting_that_is_wrong_still_is_an_error():
    with pytest.raises(SettingError):
        PLUGINS.connector("SparkSinkConnector").make().parse({"spark.format": "x", "flush.size": "0"})
