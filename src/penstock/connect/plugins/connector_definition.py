"""The definition of a connector's settings: of all, of sources or sinks, with the worker's converters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.connect.config import (
    AllOf,
    AnyCase,
    Check,
    CleanText,
    ConfigDef,
    Importance,
    JavaRegex,
    Kind,
    NonEmptyText,
    NonNull,
    OneOf,
    Range,
    Recommender,
    Setting,
    UniqueList,
    Width,
    no_alias_twice,
)
from penstock.connect.data import SettingError
from penstock.connect.plugins.chain import PREDICATES_SETTING, TRANSFORMS_SETTING
from penstock.connect.plugins.registry import Plugin, PluginKind, Plugins, standard_plugins

__all__ = [
    "COMMON",
    "CONVERTER_KINDS",
    "FOREVER",
    "RESTARTS",
    "SINK",
    "SOURCE",
    "WorkerSettings",
    "connector_definition",
    "plain_settings",
]

# All connectors

FOREVER = -1
COMMON: tuple[Setting, ...] = (
    Setting(
        name="name",
        kind=Kind.STRING,
        rule=CleanText(),
        importance=Importance.HIGH,
        doc=("Globally unique name to use for this connector."),
        group="Common",
        order=1,
        width=Width.MEDIUM,
        label="Connector name",
    ),
    Setting(
        name="connector.class",
        kind=Kind.STRING,
        importance=Importance.HIGH,
        doc=(
            "Name or alias of the class for this connector. Must be a subclass of "
            "org.apache.kafka.connect.connector.Connector. If the connector is "
            "org.apache.kafka.connect.file.FileStreamSinkConnector, you can either specify this full name,  "
            'or use "FileStreamSink" or "FileStreamSinkConnector" to make the configuration a bit shorter'
        ),
        group="Common",
        order=2,
        width=Width.LONG,
        label="Connector class",
    ),
    Setting(
        name="tasks.max",
        kind=Kind.INT,
        default="1",
        rule=Range(1),
        importance=Importance.HIGH,
        doc=("Maximum number of tasks to use for this connector."),
        group="Common",
        order=4,
        width=Width.SHORT,
        label="Tasks max",
    ),
    Setting(
        name="tasks.max.enforce",
        kind=Kind.BOOLEAN,
        default="true",
        importance=Importance.LOW,
        doc=(
            "(Deprecated) Whether to enforce that the tasks.max property is respected by the connector. By "
            "default, connectors that generate too many tasks will fail, and existing sets of tasks that "
            "exceed the tasks.max property will also be failed. If this property is set to false, then "
            "connectors will be allowed to generate more than the maximum number of tasks, and existing sets "
            "of tasks that exceed the tasks.max property will be allowed to run. This property is deprecated "
            "and will be removed in an upcoming major release."
        ),
        group="Common",
        order=5,
        width=Width.SHORT,
        label="Enforce tasks max",
    ),
    Setting(
        name="config.action.reload",
        kind=Kind.STRING,
        default="restart",
        rule=OneOf(("none", "restart")),
        importance=Importance.LOW,
        doc=(
            "The action that Connect should take on the connector when changes in external configuration "
            "providers result in a change in the connector's configuration properties. A value of 'none' "
            "indicates that Connect will do nothing. A value of 'restart' indicates that Connect should "
            "restart/reload the connector with the updated configuration properties.The restart may actually "
            "be scheduled in the future if the external configuration provider indicates that a configuration"
            " value will expire in the future."
        ),
        group="Common",
        order=14,
        width=Width.MEDIUM,
        label="Reload Action",
    ),
    Setting(
        name="errors.retry.timeout",
        kind=Kind.LONG,
        default="0",
        importance=Importance.MEDIUM,
        doc=(
            "The maximum duration in milliseconds that a failed operation will be reattempted. The default is"
            " 0, which means no retries will be attempted. Use -1 for infinite retries."
        ),
        group="Error Handling",
        order=1,
        width=Width.MEDIUM,
        label="Retry Timeout for Errors",
    ),
    Setting(
        name="errors.retry.delay.max.ms",
        kind=Kind.LONG,
        default="60000",
        importance=Importance.MEDIUM,
        doc=(
            "The maximum duration in milliseconds between consecutive retry attempts. Jitter will be added to"
            " the delay once this limit is reached to prevent thundering herd issues."
        ),
        group="Error Handling",
        order=2,
        width=Width.MEDIUM,
        label="Maximum Delay Between Retries for Errors",
    ),
    Setting(
        name="errors.tolerance",
        kind=Kind.STRING,
        default="none",
        rule=OneOf(("none", "all")),
        importance=Importance.MEDIUM,
        doc=(
            "Behavior for tolerating errors during connector operation. 'none' is the default value and "
            "signals that any error will result in an immediate connector task failure; 'all' changes the "
            "behavior to skip over problematic records."
        ),
        group="Error Handling",
        order=3,
        width=Width.SHORT,
        label="Error Tolerance",
    ),
    Setting(
        name="errors.log.enable",
        kind=Kind.BOOLEAN,
        default="false",
        importance=Importance.MEDIUM,
        doc=(
            "If true, write each error and the details of the failed operation and problematic record to the "
            "Connect application log. This is 'false' by default, so that only errors that are not tolerated "
            "are reported."
        ),
        group="Error Handling",
        order=4,
        width=Width.SHORT,
        label="Log Errors",
    ),
    Setting(
        name="errors.log.include.messages",
        kind=Kind.BOOLEAN,
        default="false",
        importance=Importance.MEDIUM,
        doc=(
            "Whether to include in the log the Connect record that resulted in a failure. For sink records, "
            "the topic, partition, offset, and timestamp will be logged. For source records, the key and "
            "value (and their schemas), all headers, and the timestamp, Kafka topic, Kafka partition, source "
            "partition, and source offset will be logged. This is 'false' by default, which will prevent "
            "record keys, values, and headers from being written to log files."
        ),
        group="Error Handling",
        order=5,
        width=Width.SHORT,
        label="Log Error Details",
    ),
)
RESTARTS = ConfigDef(
    [
        Setting(
            name="restart.policy",
            kind=Kind.STRING,
            default="none",
            rule=AnyCase(("NONE", "ON-FAILURE")),
            doc="Whether failed tasks start again: none or on-failure.",
        ),
        Setting(
            name="restart.delay.ms",
            kind=Kind.LONG,
            default=1000,
            rule=Range(1),
            doc="The wait before the first restart, doubled each time.",
        ),
        Setting(
            name="restart.delay.max.ms",
            kind=Kind.LONG,
            default=60_000,
            rule=Range(1),
            doc="The longest wait. A task that runs longer than this has recovered.",
        ),
        Setting(
            name="restart.max.attempts",
            kind=Kind.LONG,
            default=FOREVER,
            rule=Range(FOREVER),
            doc="Attempts in a row; -1: no limit.",
        ),
    ]
)


# Sources and sinks


def _regex(name: str, value: Any) -> None:
    if value != "":
        JavaRegex()(name, value)


def _interval(name: str, value: Any) -> None:
    if value is not None:
        Range(0)(name, value)


SOURCE: tuple[Setting, ...] = (
    Setting(
        name="topic.creation.groups",
        kind=Kind.LIST,
        default=(),
        rule=AllOf((NonNull(), Check(no_alias_twice, "unique topic creation groups"))),
        importance=Importance.LOW,
        doc=("Groups of configurations for topics created by source connectors"),
        group="Topic Creation",
        order=1,
        width=Width.LONG,
        label="Topic Creation Groups",
    ),
    Setting(
        name="exactly.once.support",
        kind=Kind.STRING,
        default="requested",
        rule=AnyCase(("REQUIRED", "REQUESTED")),
        importance=Importance.MEDIUM,
        doc=(
            'Permitted values are requested, required. If set to "required", forces a preflight check for the'
            " connector to ensure that it can provide exactly-once semantics with the given configuration. "
            "Some connectors may be capable of providing exactly-once semantics but not signal to Connect "
            "that they support this; in that case, documentation for the connector should be consulted "
            'carefully before creating it, and the value for this property should be set to "requested". '
            'Additionally, if the value is set to "required" but the worker that performs preflight '
            "validation does not have exactly-once support enabled for source connectors, requests to create "
            "or validate the connector will fail."
        ),
        group="Exactly Once Support",
        order=2,
        width=Width.SHORT,
        label="Exactly once support",
    ),
    Setting(
        name="transaction.boundary",
        kind=Kind.STRING,
        default="poll",
        rule=AnyCase(("INTERVAL", "POLL", "CONNECTOR")),
        importance=Importance.MEDIUM,
        doc=(
            "Permitted values are: poll, interval, connector. If set to 'poll', a new producer transaction "
            "will be started and committed for every batch of records that each task from this connector "
            "provides to Connect. If set to 'connector', relies on connector-defined transaction boundaries; "
            "note that not all connectors are capable of defining their own transaction boundaries, and in "
            "that case, attempts to instantiate a connector with this value will fail. Finally, if set to "
            "'interval', commits transactions only after a user-defined time interval has passed."
        ),
        group="Exactly Once Support",
        order=3,
        width=Width.SHORT,
        label="Transaction Boundary",
    ),
    Setting(
        name="transaction.boundary.interval.ms",
        kind=Kind.LONG,
        default=None,
        rule=Check(_interval, "[0,...]"),
        importance=Importance.LOW,
        doc=(
            "If 'transaction.boundary' is set to 'interval', determines the interval for producer transaction"
            " commits by connector tasks. If unset, defaults to the value of the worker-level "
            "'offset.flush.interval.ms' property. It has no effect if a different transaction.boundary is "
            "specified."
        ),
        group="Exactly Once Support",
        order=4,
        width=Width.SHORT,
        label="Transaction boundary interval",
    ),
    Setting(
        name="offsets.storage.topic",
        kind=Kind.STRING,
        default=None,
        rule=NonEmptyText(),
        importance=Importance.LOW,
        doc=(
            "The name of a separate offsets topic to use for this connector. If empty or not specified, the "
            "worker's global offsets topic name will be used. If specified, the offsets topic will be created"
            " if it does not already exist on the Kafka cluster targeted by this connector (which may be "
            "different from the one used for the worker's global offsets topic if the bootstrap.servers "
            "property of the connector's producer has been overridden from the worker's). Only applicable in "
            "distributed mode; in standalone mode, setting this property will have no effect."
        ),
        group="offsets.topic",
        order=1,
        width=Width.LONG,
        label="Offsets topic",
    ),
)
SINK: tuple[Setting, ...] = (
    Setting(
        name="topics",
        kind=Kind.LIST,
        default=(),
        rule=UniqueList(allow_empty=True),
        importance=Importance.HIGH,
        doc=("List of topics to consume, separated by commas"),
        group="Common",
        order=4,
        width=Width.LONG,
        label="Topics",
    ),
    Setting(
        name="topics.regex",
        kind=Kind.STRING,
        default="",
        rule=Check(_regex, "valid regex"),
        importance=Importance.HIGH,
        doc=(
            "Regular expression giving topics to consume. Under the hood, the regex is compiled to a "
            "<code>java.util.regex.Pattern</code>. Only one of topics or topics.regex should be specified."
        ),
        group="Common",
        order=4,
        width=Width.LONG,
        label="Topics regex",
    ),
    Setting(
        name="errors.deadletterqueue.topic.name",
        kind=Kind.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc=(
            "The name of the topic to be used as the dead letter queue (DLQ) for messages that result in an "
            "error when processed by this sink connector, or its transformations or converters. The topic "
            "name is blank by default, which means that no messages are to be recorded in the DLQ."
        ),
        group="Error Handling",
        order=6,
        width=Width.MEDIUM,
        label="Dead Letter Queue Topic Name",
    ),
    Setting(
        name="errors.deadletterqueue.topic.replication.factor",
        kind=Kind.SHORT,
        default="3",
        importance=Importance.MEDIUM,
        doc=("Replication factor used to create the dead letter queue topic when it doesn't already exist."),
        group="Error Handling",
        order=7,
        width=Width.MEDIUM,
        label="Dead Letter Queue Topic Replication Factor",
    ),
    Setting(
        name="errors.deadletterqueue.context.headers.enable",
        kind=Kind.BOOLEAN,
        default="false",
        importance=Importance.MEDIUM,
        doc=(
            "If true, add headers containing error context to the messages written to the dead letter queue. "
            "To avoid clashing with headers from the original record, all error context header keys, all "
            "error context header keys will start with <code>__connect.errors.</code>"
        ),
        group="Error Handling",
        order=8,
        width=Width.MEDIUM,
        label="Enable Error Context Headers",
    ),
)


# With the worker's converters

CONVERTER_KINDS = {
    "key.converter": PluginKind.CONVERTER,
    "value.converter": PluginKind.CONVERTER,
    "header.converter": PluginKind.HEADER_CONVERTER,
}
JSON, SIMPLE = "org.apache.kafka.connect.json.JsonConverter", "org.apache.kafka.connect.storage.SimpleHeaderConverter"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker that concern its connectors.

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
