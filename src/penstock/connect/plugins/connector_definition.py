"""The definition of a connector's settings: those of all connectors, with the worker's converters as defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.connect.config import Check, ConfigDef, Importance, Kind, Recommender, Setting, Width
from penstock.connect.data import SettingError
from penstock.connect.plugins.common_settings import COMMON
from penstock.connect.plugins.enriching import PREDICATES_SETTING, TRANSFORMS_SETTING
from penstock.connect.plugins.kind_settings import SINK, SOURCE
from penstock.connect.plugins.registry import Plugin, PluginKind, Plugins, standard_plugins

__all__ = ["CONVERTER_KINDS", "WorkerSettings", "connector_definition", "plain_settings"]

CONVERTER_KINDS = {
    "key.converter": PluginKind.CONVERTER,
    "value.converter": PluginKind.CONVERTER,
    "header.converter": PluginKind.HEADER_CONVERTER,
}
JSON, SIMPLE = "org.apache.kafka.connect.json.JsonConverter", "org.apache.kafka.connect.storage.SimpleHeaderConverter"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker says about its connectors.

    Attributes:
        key_converter: The converter of keys where a connector names none.
        value_converter: That of values.
        header_converter: That of headers.
        exactly_once: Sources may ask for exactly once.
        distributed: It is a distributed one; a standalone one does not check what sources say of exactly once.
    """

    key_converter: str = JSON
    value_converter: str = JSON
    header_converter: str = SIMPLE
    exactly_once: bool = False
    distributed: bool = True

    def converter(self, name: str) -> str:
        """Return the converter of ``key.converter``, ``value.converter`` or ``header.converter``."""
        return str(getattr(self, name.replace(".", "_")))


def connector_definition(
    plugin: Plugin, config: Mapping[str, Any], plugins: Plugins, worker: WorkerSettings
) -> ConfigDef:
    """Return the settings that any connector of its type has, before those of its transformations and its own."""
    common = {setting.name: setting for setting in COMMON}
    version = Setting(
        name="connector.plugin.version",
        kind=Kind.STRING,
        default=plugin.version,
        doc="Version of the connector.",
        group="Common",
        order=3,
        width=Width.MEDIUM,
        label="Connector version",
        recommender=Recommender(lambda _name, _parsed: [plugin.version]),
    )
    converters = [
        setting
        for order, name in enumerate(CONVERTER_KINDS)
        for setting in _converter(name, 6 + 2 * order, config, (plugins, worker))
    ]
    first = [common.pop("name"), common.pop("connector.class"), version]
    tasks = [common.pop("tasks.max"), common.pop("tasks.max.enforce")]
    own = SOURCE if PluginKind.SOURCE in plugin.kinds else SINK
    lists = [TRANSFORMS_SETTING, PREDICATES_SETTING]
    return ConfigDef([*first, *tasks, *converters, *lists, *common.values(), *own])


def plain_settings() -> list[Setting]:
    """Return the settings of all connectors without a worker and its plugins.

    Nothing is the default, nothing is offered.

    Some of Kafka's connectors have them in their own definitions, which count. Kafka's ``ConnectorConfig.configDef()``.
    """
    plugin = Plugin("", (PluginKind.SOURCE,), object, ConfigDef())
    definition = connector_definition(plugin, {}, standard_plugins(), WorkerSettings())
    own = {setting.name for setting in SOURCE}
    hidden = Recommender(lambda _name, _parsed: [], lambda _name, _parsed: False)
    settings = []
    for setting in definition:
        if setting.name == "connector.plugin.version" or setting.name in CONVERTER_KINDS:
            settings.append(replace(setting, default=None, recommender=None))
        elif setting.name.removesuffix(".plugin.version") in CONVERTER_KINDS:
            settings.append(replace(setting, default=None, recommender=hidden))
        elif setting.name not in own:
            settings.append(setting)
    return settings


def _converter(
    name: str, order: int, config: Mapping[str, Any], where: tuple[Plugins, WorkerSettings]
) -> tuple[Setting, Setting]:
    """Return the setting of a converter, and that of its version."""
    plugins, worker = where
    kind = CONVERTER_KINDS[name]
    part = name.partition(".")[0]
    interface = "HeaderConverter" if part == "header" else "Converter"
    chosen: Plugin | None = None
    is_known = True
    try:
        asked = config.get(name)
        chosen = plugins.find(worker.converter(name) if asked is None else str(asked)).require(kind)
    except LookupError:
        is_known = False
    except SettingError:
        pass  # of another type: the rule below reports it

    def check(_name: str, value: Any) -> None:
        if isinstance(value, Plugin):
            value.require(kind)

    details = "the header values" if part == "header" else f"the {part}s"
    guessed = (
        " By default, the SimpleHeaderConverter is used to serialize header values to strings and deserialize them by "
        "inferring the schemas."
    )
    converter = Setting(
        name=name,
        kind=Kind.CLASS,
        default=plugins.find(worker.converter(name)),
        rule=Check(check, f"a class that implements {interface}"),
        importance=Importance.LOW,
        doc=f"{interface} class used to convert between Kafka Connect format and the serialized form that is written "
        f"to Kafka. This controls the format of {details} in messages written to or read from Kafka, and since this "
        "is independent of connectors it allows any connector to work with any serialization format. Examples of "
        f"common formats include JSON and Avro.{guessed if part == 'header' else ''}",
        group="Common",
        order=order,
        width=Width.SHORT,
        label=f"{part.capitalize()} converter class",
        recommender=Recommender(lambda _name, _parsed: list(plugins.of_kind(kind))),
    )
    version = replace(
        converter,
        name=f"{name}.plugin.version",
        kind=Kind.STRING,
        default=chosen.version if chosen else None,
        rule=None,
        doc=f"Version of the {part} converter.",
        order=order + 1,
        label=f"{part.capitalize()} converter version",
        recommender=Recommender(
            lambda _name, _parsed: [chosen.version] if chosen else [], lambda _name, _parsed: is_known
        ),
    )
    return converter, version
