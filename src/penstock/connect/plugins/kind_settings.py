"""The settings that only sources or only sinks have."""

from __future__ import annotations

from typing import Any

from penstock.connect.config import (
    AllOf,
    AnyCase,
    Check,
    Importance,
    JavaRegex,
    Kind,
    NonEmptyText,
    NonNull,
    Range,
    Setting,
    UniqueList,
    Width,
    no_alias_twice,
)

__all__ = ["SINK", "SOURCE"]


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
