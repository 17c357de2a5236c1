"""The settings of all connectors: Kafka Connect's, and those by which failed tasks start again."""

from __future__ import annotations

from penstock.connect.config import AnyCase, CleanText, ConfigDef, Importance, Kind, OneOf, Range, Setting, Width

__all__ = ["COMMON", "FOREVER", "RESTARTS"]

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
