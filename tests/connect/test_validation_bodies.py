"""Bodies of the validation and of the plugins' settings that Kafka Connect answered, beside ours."""

import pytest

from connect_cases import load_cases
from connect_compare import differences
from penstock.connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSourceConnector
from penstock.connect.plugins import connector_plugin, plugin_settings, standard_plugins, validate_connector

REST = {case["name"]: case for case in load_cases(kind="rest")}
PLUGINS = standard_plugins()
for connector in (FileStreamSourceConnector, FileStreamSinkConnector):
    PLUGINS.add(connector_plugin(connector))
VERSION = {"%VERSION%": "4.3.1"}


def steps(names, suffix):
    for name in names:
        for number, step in enumerate(REST[name]["steps"]):
            path = step.get("request", {}).get("path", "").partition("?")[0]
            body = step.get("response", {}).get("body")
            if path.endswith(suffix) and step["response"]["status"] == 200:
                yield pytest.param(step, body, id=f"{name}-{number}")


VALIDATED = (
    "validate-source",
    "validate-sink",
    "validate-common",
    "validate-converters",
    "validate-bodies",
    "validate-plugin-names",
)
LEFT_OUT = ("org.apache.kafka.connect.storage.Converter", "MirrorSource", "Scripted")  # an interface; other connectors


@pytest.mark.parametrize(("step", "body"), [*steps(VALIDATED, "/config/validate")])
def test_validation(step, body):
    if any(name in str(step["request"]) for name in LEFT_OUT):
        pytest.skip("names what is not built")
    found = validate_connector(step["request"]["body"], PLUGINS)
    assert differences(body, found, ignore=step.get("ignore", ()), unordered=step.get("unordered", ())) == []


@pytest.mark.parametrize(("step", "body"), [*steps(("plugins-config-others", "plugins-config-connectors"), "/config")])
def test_settings_of_plugins(step, body):
    name = step["request"]["path"].partition("?")[0].split("/")[2]
    if any(word in name for word in (*LEFT_OUT, "Mirror")):
        pytest.skip("names what is not built")
    try:
        plugin = PLUGINS.find(name)
    except LookupError:
        plugin = PLUGINS.connector(name)
    found = plugin_settings(plugin, PLUGINS)
    assert differences(body, found, ignore=step.get("ignore", ()), unordered=step.get("unordered", ())) == []


@pytest.mark.parametrize("name", ["", "Nope", "filestreamsource", "java.lang.String"])
def test_connectors_that_are_not_there(name):
    with pytest.raises(LookupError):
        validate_connector({"connector.class": name}, PLUGINS)
