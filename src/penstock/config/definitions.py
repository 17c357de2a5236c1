"""All settings: their types, defaults and meanings. The reference page is generated from this table.

Settings of Kafka Streams that would change results but are not supported are refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from penstock.config.setting_types import (
    ANY,
    BOOLEAN,
    DURATION,
    EXTRACTOR,
    HANDLER,
    IDLE_TIME,
    LIST,
    OBJECT,
    OFFSET_RESET,
    PROCESSING_MODE,
    SIZE,
    STORE_SUPPLIERS,
    STRING,
    TIMESTAMP,
    WRAPPER,
    SettingKind,
    choice,
    integer,
)
from penstock.errors import ConfigError

__all__ = [
    "ALIASES",
    "CONFIG_DEFS",
    "CONSOLE",
    "CONTINUOUS",
    "IN_MICRO_BATCHES",
    "MICRO_BATCH_ONLY",
    "OF_STATE",
    "PREFIXES",
    "REFUSED",
    "Refusal",
    "SettingDefinition",
    "hides_records",
    "refuse",
    "refuse_in_mode",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason to refuse a setting, the alternative, and a test for values that match the behaviour here."""

    reason: str
    instead: str
    harmless: Callable[[Any], bool] = lambda _: False


def _is_number_up_to_0(value: Any) -> bool:
    try:
        return int(value) <= 0
    except (TypeError, ValueError):
        return False


REFUSED: Mapping[str, Refusal] = MappingProxyType(
    {
        "windowed.inner.class.serde": Refusal(
            "it is for plain consumers, and Kafka Streams refuses it too",
            'Name the serde where it is used: Serdes.time_windowed("string", "1 minute"), or "windowed<string,60000>".',
        ),
        "window.size.ms": Refusal(
            "it is for plain consumers, and Kafka Streams refuses it too",
            'Name the size where it is used: Serdes.time_windowed("string", "1 minute"), or "windowed<string,60000>".',
        ),
    }
)
OF_STATE = ("dsl.store.format",)  # which a change of the mode cannot leave out: the state has that form
IN_MICRO_BATCHES: Mapping[str, Refusal] = MappingProxyType(
    {
        "max.task.idle.ms": Refusal(
            "a micro-batch reads all records that its topics have when it is planned, and processes them in order of"
            " time, as with 0; it does not wait for empty topics",
            "Set processing.mode to continuous, or leave this setting out: penstock.min.records.per.batch and"
            " penstock.max.wait.ms let a batch wait for more records.",
            _is_number_up_to_0,
        ),
        "dsl.store.format": Refusal(
            "in micro-batches the stores of tables and windows keep no headers",
            "Set processing.mode to continuous, or leave this setting out. A processor may keep headers in a store of"
            " its own, as Stores.timestamped_with_headers.",
            lambda value: value == "DEFAULT",
        ),
    }
)


def refuse(name: str, value: Any) -> None:
    """Raise ConfigError for a setting whose effect is not supported."""
    _refuse(name, value, REFUSED.get(name))


def refuse_in_mode(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for a setting that the processing mode does not support."""
    if settings.get("processing.mode") == "micro_batch":
        for name, refusal in IN_MICRO_BATCHES.items():
            _refuse(name, settings.get(name), refusal)


def _refuse(name: str, value: Any, refusal: Refusal | None) -> None:
    if refusal is not None and value is not None and not refusal.harmless(value):
        raise ConfigError(f"{name}={value} is not supported: {refusal.reason}", hint=refusal.instead, setting=name)


CONSOLE: tuple[tuple[str, SettingKind, Any, str], ...] = (
    (
        "penstock.console.enabled",
        BOOLEAN,
        True,
        "Whether the application keeps figures for `penstock ui` and serves `/ui`.",
    ),
    ("penstock.console.token", STRING, None, "Token of the console at the HTTP port; by default one that is kept."),
    (
        "penstock.console.allow.writes",
        BOOLEAN,
        False,
        "Whether visitors of `/ui` may change something, too.",
    ),
    (
        "penstock.console.users",
        STRING,
        None,
        "File of the visitors of `/ui`, lines NAME:ROLE:TOKEN, in place of one token; roles say what they may change.",
    ),
    (
        "penstock.console.messages",
        BOOLEAN,
        True,
        "Whether `/ui`, logs and alerts may show keys, values, and texts of errors, which may quote them.",
    ),
    (
        "penstock.console.mask",
        LIST,
        (),
        "Fields of keys, values and headers that `/ui` hides, such as `value.card`; texts of errors are hidden, too.",
    ),
    ("penstock.metrics.spark", BOOLEAN, False, "Whether Spark's listeners and metric sinks get the totals."),
    (
        "penstock.alerts.state.growth.percent",
        integer(0),
        20,
        "Growth of a store in an hour that raises an alert; 0: none.",
    ),
    ("penstock.alerts.hold.ms", DURATION, 3_600_000, "Time for which alerts of restarts and new errors hold; 0: none."),
    ("penstock.alerts.webhook", STRING, None, "URL to which the start and the end of alerts are posted as JSON."),
)


def hides_records(config: Mapping[str, Any]) -> bool:
    """Return whether a part of the records must not be shown, so that no text of an error may quote one."""
    return not config["penstock.console.messages"] or bool(config["penstock.console.mask"])


MICRO_BATCH_ONLY = frozenset(
    {
        "penstock.max.records.per.batch",
        "penstock.max.bytes.per.batch",
        "penstock.max.records.per.partition",
        "penstock.min.records.per.batch",
        "penstock.max.wait.ms",
        "penstock.max.batch.ms",
        "penstock.batch.pause.ms",
        "penstock.snapshot.interval.batches",
        "penstock.state.map.size",
    }
)
"""Settings that have no effect on stream threads, whose memory and pace the settings below limit."""

CONTINUOUS: tuple[tuple[str, SettingKind, Any, str], ...] = (
    (
        "group.protocol",
        choice("classic", "streams"),
        None,
        (
            "`streams`: each stream thread is a member of the application's group (KIP-1071; Kafka 4.2 and later), and "
            "all instances of the application share its tasks. `classic`: one instance runs, and a second one is "
            "refused. By default the first instance runs alone, and goes over to `streams` when a second one is "
            "started. Only with `processing.mode=continuous`."
        ),
    ),
    (
        "penstock.heartbeat.interval.ms",
        DURATION,
        None,
        (
            "Time between two heartbeats by which an instance with `group.protocol=streams` looks whether others have "
            "come or gone; by default 100 ms. One of its threads looks so often. The others ask ten times less often, "
            "and at once when that one has noticed something. The interval of the brokers (5 s) is the longest."
        ),
    ),
    (
        "num.stream.threads",
        integer(1),
        None,
        "Most stream threads of the whole application; by default as many as Spark can run at once.",
    ),
    (
        "max.task.idle.ms",
        IDLE_TIME,
        0,
        (
            "Time for which a task with several partitions waits for one that is empty (KIP-695). 0: only for records "
            "that are known to be in the log; -1: not at all. Only with `processing.mode=continuous`."
        ),
    ),
    (
        "buffered.records.per.partition",
        integer(1),
        100_000,
        "Buffered records above which a stream thread pauses a partition (Kafka: 1000; here they are columns).",
    ),
    (
        "input.buffer.max.bytes",
        SIZE,
        512 << 20,
        "Buffered bytes of all partitions above which a stream thread pauses those that have buffered records.",
    ),
    (
        "max.poll.records",
        integer(1),
        250_000,
        (
            "Most records that a stream thread's task processes at once (Kafka: 1000; here they are columns). It takes "
            "fewer if its functions are so slow that a batch would last longer than half a second."
        ),
    ),
    (
        "repartition.purge.interval.ms",
        DURATION,
        30_000,
        "Time between deletions of the records of repartition topics that have been processed and committed.",
    ),
    (
        "acceptable.recovery.lag",
        integer(0),
        10_000,
        (
            "Records by which a replica may be behind and still count as caught up: to answer queries, or to take its "
            "task over."
        ),
    ),
    (
        "num.standby.replicas",
        integer(0),
        0,
        (
            "Standbys of each task with state, on other machines than the task and each other. Only with "
            "`processing.mode=continuous`."
        ),
    ),
    (
        "max.warmup.replicas",
        integer(1),
        2,
        "Most replicas, besides the standbys, that are warmed up at once for tasks that are to move.",
    ),
    (
        "probing.rebalance.interval.ms",
        DURATION,
        10_000,
        "Time between two checks of warm-ups: tasks move once these have caught up (Kafka: 600000).",
    ),
)


@dataclass(frozen=True, slots=True)
class SettingDefinition:
    """A setting. Without ``effect`` it is a setting of Kafka that is accepted but has no effect here."""

    name: str
    kind: SettingKind
    default: Any
    doc: str
    group: str
    effect: bool = True


# Settings with these prefixes are passed on: to Kafka's clients, to Spark, to topics that the app creates.
PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "main.consumer.": "Kafka consumers of source topics",
        "restore.consumer.": "Kafka consumers that read changelogs",
        "global.consumer.": "Kafka consumers of global tables",
        "consumer.": "all Kafka consumers",
        "producer.": "Kafka producers",
        "admin.": "Kafka admin clients",
        "topic.": "topics that the app creates (changelogs, repartition topics)",
        "spark.": "the Spark session",
        "client.tag.": "free labels of this instance",
        "schema.registry.": "the schema registry's client",
        "basic.auth.": "the schema registry's client",
        "bearer.auth.": "the schema registry's client",
        "penstock.registry.identity": "the identity whose tokens the schema registry gets",
        "__": "internal settings of Kafka Streams",
    }
)

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "cache.max.bytes.buffering": "statestore.cache.max.bytes",
        "default.deserialization.exception.handler": "deserialization.exception.handler",
        "default.production.exception.handler": "production.exception.handler",
        "penstock.trigger.interval.ms": "commit.interval.ms",
    }
)

_APP = (
    (
        "application.id",
        STRING,
        None,
        "Name of the app: prefix of its topics, consumer group, directory. Required to start.",
    ),
    (
        "bootstrap.servers",
        STRING,
        None,
        "The log: `host:port` of Kafka, or `sqlite:///path`. Required to start.",
    ),
    ("client.id", STRING, "", "Name of this instance for Kafka's clients and logs."),
    (
        "metrics.recording.level",
        choice("INFO", "DEBUG", "TRACE"),
        "INFO",
        "The detail in which metrics are recorded: those of a higher level than this do not exist.",
    ),
    ("metrics.num.samples", integer(1), 2, "The number of samples from which means, extremes and rates are computed."),
    ("metrics.sample.window.ms", DURATION, 30_000, "The length of a sample of metrics."),
    ("application.server", STRING, "", "`host:port` under which this instance answers interactive queries."),
    (
        "state.dir",
        STRING,
        None,
        (
            "Directory of local state, a folder for each application. By default `<file>.penstock` beside an embedded "
            "log, and for Kafka `penstock/<cluster id>` under `$XDG_STATE_HOME` (`~/.local/state`)."
        ),
    ),
    (
        "processing.guarantee",
        choice("exactly_once_v2", "at_least_once"),
        "exactly_once_v2",
        "Exactly once is the default here (Kafka: at least once).",
    ),
    (
        "processing.mode",
        PROCESSING_MODE,
        "continuous",
        (
            "`continuous`: stream threads, as in Kafka Streams, with milliseconds of latency. `micro_batch`: batches "
            "of Spark, whose cores are free between them. Not set: an application keeps the mode it has run in."
        ),
    ),
    (
        "commit.interval.ms",
        DURATION,
        100,
        "Time between two commits of a stream thread; with micro-batches, the shortest time between the starts of two.",
    ),
    (
        "topology.optimization",
        choice(
            "none",
            "all",
            "reuse.ktable.source.topics",
            "merge.repartition.topics",
            "single.store.self.join",
            several=True,
        ),
        "none",
        "Optimizations of the topology.",
    ),
    (
        "ensure.explicit.internal.resource.naming",
        BOOLEAN,
        False,
        "Refuse topologies in which a store, changelog or repartition topic has a generated name.",
    ),
)
_RECORDS = (
    (
        "default.key.serde",
        OBJECT,
        None,
        "Serde of keys for which no serde is named: a serde, its name, or Kafka's class name.",
    ),
    ("default.value.serde", OBJECT, None, "Serde of values for which no serde is named."),
    (
        "default.timestamp.extractor",
        EXTRACTOR,
        None,
        (
            "Function of (record, partition time) that returns a timestamp in milliseconds, or the name of one of"
            " Kafka's extractors, for topics without one in `Consumed`. By default the record's own timestamp."
        ),
    ),
)
_ERRORS = (
    (
        "processor.wrapper.class",
        WRAPPER,
        None,
        "`ProcessorWrapper` that may replace the suppliers of processors; given to `builder.build(config)`.",
    ),
    ("deserialization.exception.handler", HANDLER, "fail", "Handler of records that cannot be decoded."),
    (
        "processing.exception.handler",
        HANDLER,
        "fail",
        "Handler of records for which a user's function raises an error.",
    ),
    (
        "production.exception.handler",
        HANDLER,
        "fail",
        "Handler of records that cannot be encoded or written.",
    ),
    (
        "processing.exception.handler.global.enabled",
        BOOLEAN,
        False,
        "Whether the processing handler also handles errors in processors of global stores, which fail otherwise.",
    ),
    ("errors.dead.letter.queue.topic.name", STRING, None, "Topic for failed records, with the reason in headers."),
    ("task.timeout.ms", DURATION, 300_000, "Time for which a task retries after errors of the log."),
)
_STATE = (
    (
        "dsl.store.format",
        choice("DEFAULT", "HEADERS", synonyms={"plain": "DEFAULT"}),
        "DEFAULT",
        "`HEADERS`: tables and windows on disk can keep headers, in their changelogs, too; not in micro-batches.",
    ),
    (
        "default.dsl.store",
        choice("rocksDB", "in_memory"),
        "rocksDB",
        "Where the stores of the DSL are that do not say it: on disk, or in memory.",
    ),
    (
        "dsl.store.suppliers.class",
        STORE_SUPPLIERS,
        None,
        "The same by the name of one of Kafka's classes; it counts before `default.dsl.store`.",
    ),
    (
        "statestore.cache.max.bytes",
        SIZE,
        10 << 20,
        "0: every update is sent; otherwise one update for each key and batch.",
    ),
    (
        "enable.transactional.statestores",
        BOOLEAN,
        False,
        "Stores are transactional in any case. In the test driver: queries at READ_COMMITTED see commits alone.",
    ),
    (
        "default.interactive.query.isolation.level",
        choice("READ_UNCOMMITTED", "READ_COMMITTED"),
        "READ_UNCOMMITTED",
        "Isolation level of queries that name none; see `StateQueryRequest.with_isolation_level`.",
    ),
    (
        "windowstore.changelog.additional.retention.ms",
        DURATION,
        86_400_000,
        "Added to the retention of windowed changelogs.",
    ),
    (
        "state.cleanup.delay.ms",
        DURATION,
        600_000,
        (
            "Time before a machine deletes the replica of a task that its threads neither run nor follow any more; in "
            "micro-batches only if there is a newer snapshot."
        ),
    ),
    ("replication.factor", integer(-1), -1, "Replicas of topics that the app creates; -1: the broker's default."),
    ("num.partitions", integer(1), 1, "Partitions of topics that the app creates, if no number is given."),
)
_PENSTOCK = (
    ("penstock.checkpoint.location", STRING, None, "Directory or URL of state segments and Spark's checkpoint."),
    (
        "penstock.source.partitions",
        integer(0),
        0,
        "Partitions with which missing source topics are created at the start; 0: they must exist.",
    ),
    ("penstock.max.records.per.batch", integer(1), 500_000, "Most records that one micro-batch reads from all topics."),
    (
        "penstock.max.bytes.per.batch",
        SIZE,
        256 << 20,
        "Approximate limit of bytes that one micro-batch reads, but at least one record. 0: no limit.",
    ),
    (
        "penstock.max.records.per.partition",
        integer(1),
        None,
        "Most records that one micro-batch reads from one partition.",
    ),
    (
        "penstock.min.records.per.batch",
        integer(0),
        0,
        "Records for which a micro-batch waits, for at most penstock.max.wait.ms.",
    ),
    (
        "penstock.max.wait.ms",
        DURATION,
        0,
        "Longest time for which a micro-batch waits for penstock.min.records.per.batch.",
    ),
    (
        "penstock.max.batch.ms",
        DURATION,
        0,
        "Target duration of a micro-batch: while batches take longer, they get fewer records. 0: no target.",
    ),
    ("penstock.batch.pause.ms", DURATION, 0, "Pause between the end of a micro-batch and the start of the next one."),
    (
        "penstock.start.timestamp",
        TIMESTAMP,
        None,
        "Start without a committed offset, instead of auto.offset.reset: an ISO date and time, or milliseconds.",
    ),
    (
        "penstock.data.loss",
        choice("fail", "continue"),
        "fail",
        "Reaction to lost records, a replaced topic or log, and offsets that went back: `continue` logs a warning.",
    ),
    ("penstock.http.port", integer(0), None, "Port for queries, metrics and `/ui`; 0: a free one. Not set: no server."),
    ("penstock.http.host", STRING, "127.0.0.1", "Address of the server. Queries need no authentication."),
    *CONSOLE,
    (
        "penstock.snapshot.interval.batches",
        integer(1),
        100,
        "Batches after which the deltas of a task are merged, or a snapshot is written if it is due.",
    ),
    ("penstock.changelog.enabled", BOOLEAN, True, "Whether stores with logging have changelog topics."),
    (
        "penstock.state.map.size",
        SIZE,
        16 << 30,
        "Address space of a task's replica; uses neither memory nor disk. A replica that outgrows it is mapped again.",
    ),
    (
        "penstock.state.drop",
        LIST,
        (),
        "Stores of the checkpoint that may be missing from the topology: they are removed, but their rows are kept.",
    ),
    (
        "penstock.untyped.stores",
        choice("default", "auto"),
        "default",
        (
            "Serde of stores for values of unknown type: `default.value.serde`, as in Kafka Streams, "
            "or `auto`, which writes all types of Python but cannot be read by Java."
        ),
    ),
    ("penstock.tick.interval.ms", DURATION, 1_000, "Time between batches for wall-clock work when no records arrive."),
    ("penstock.shutdown.timeout.ms", DURATION, 30_000, "Time for which `close()` waits for the running batch."),
    (
        "penstock.kafka.max.unpacked.bytes",
        SIZE,
        128 << 20,
        "Most bytes of Kafka's compressed record batches after decompression, alone or together.",
    ),
)
_CLIENTS = (
    (
        "security.protocol",
        choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "PLAINTEXT",
        "Protocol of connections to Kafka.",
    ),
    (
        "auto.offset.reset",
        OFFSET_RESET,
        "earliest",
        "Start without a committed offset; `by_duration:PT1H`: with the records of the last hour.",
    ),
    (
        "metadata.max.age.ms",
        DURATION,
        300_000,
        "Time between searches for topics that match a pattern, and for new partitions.",
    ),
    (
        "request.timeout.ms",
        DURATION,
        30_000,
        "Time to wait for a response of Kafka. Kafka's `StreamsConfig` lists 40,000, but its clients wait 30,000, too.",
    ),
    ("retry.backoff.ms", DURATION, 100, "Pause before a request is repeated."),
    ("reconnect.backoff.ms", DURATION, 50, "Pause before a connection is tried again."),
    ("reconnect.backoff.max.ms", DURATION, 1_000, "Longest pause before a connection is tried again."),
    ("connections.max.idle.ms", DURATION, 540_000, "Time after which idle connections are closed."),
    ("receive.buffer.bytes", ANY, None, "Size of the receive buffer of connections to Kafka."),
    ("send.buffer.bytes", ANY, None, "Size of the send buffer of connections to Kafka."),
)
_SCHEMAS = (
    ("schema.registry.url", STRING, None, "The schema registry of Avro, Protobuf and JSON Schema serdes."),
    (
        "auto.register.schemas",
        BOOLEAN,
        True,
        "Whether schemas are registered when they are written; otherwise they must exist.",
    ),
    (
        "use.latest.version",
        BOOLEAN,
        False,
        "Whether to write with the subject's newest schema, not with the serde's own.",
    ),
    (
        "latest.cache.ttl.sec",
        integer(-1),
        -1,
        "With `use.latest.version`: seconds until the newest schema is looked up again; -1: never.",
    ),
    ("normalize.schemas", BOOLEAN, False, "Whether the registry normalizes schemas first."),
    (
        "key.subject.name.strategy",
        OBJECT,
        "topic",
        "Naming of the subjects of keys: `topic`, `record`, `topic_record`, Kafka's class name, or a function.",
    ),
    ("value.subject.name.strategy", OBJECT, "topic", "Naming of the subjects of values."),
    ("key.schema.id.serializer", STRING, "prefix", "Place of the id of a key's schema: `prefix` or `header`."),
    ("value.schema.id.serializer", STRING, "prefix", "Place of the id of a value's schema: `prefix` or `header`."),
    ("json.fail.invalid.schema", BOOLEAN, False, "Whether values are checked against their JSON Schema."),
)
# Settings of Kafka Streams whose job Spark does, or that only concern Java: accepted, so that a config can be shared.
_WITHOUT_EFFECT = (
    "allow.os.group.write.access", "built.in.metrics.version", "config.providers",
    "default.client.supplier", "default.list.key.serde.inner", "default.list.key.serde.type",
    "default.list.value.serde.inner", "default.list.value.serde.type",
    "enable.metrics.push", "log.summary.interval.ms",
    "metadata.cluster.check.enable", "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms",
    "metric.reporters", "poll.ms",
    "rack.aware.assignment.non_overlap_cost", "rack.aware.assignment.strategy", "rack.aware.assignment.tags",
    "rack.aware.assignment.traffic_cost", "rocksdb.config.setter",
    "state.cleanup.dir.max.age.ms", "task.assignor.class", "topology.description.push.enabled",
    "upgrade.from",
)  # fmt: skip


def _table() -> dict[str, SettingDefinition]:
    groups: dict[str, tuple[tuple[str, SettingKind, Any, str], ...]] = {
        "Application": _APP,
        "Records": _RECORDS,
        "Errors": _ERRORS,
        "State": _STATE,
        "Penstock": _PENSTOCK,
        "Stream threads": CONTINUOUS,
        "Schemas": _SCHEMAS,
        "Clients": _CLIENTS,
    }
    table = {row[0]: SettingDefinition(*row, group) for group, rows in groups.items() for row in rows}
    for name in _WITHOUT_EFFECT:
        table[name] = SettingDefinition(name, ANY, None, "Accepted for compatibility.", "No effect", effect=False)
    return table


CONFIG_DEFS: Mapping[str, SettingDefinition] = MappingProxyType(_table())
