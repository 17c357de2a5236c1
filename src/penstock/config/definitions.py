"""Every setting: its type, default and meaning. The reference page is printed from this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from penstock.config.kinds import (
    ANY,
    BOOLEAN,
    DURATION,
    HANDLER,
    LIST,
    OBJECT,
    OFFSET_RESET,
    SIZE,
    STRING,
    TIMESTAMP,
    Kind,
    choice,
    integer,
)

__all__ = ["ALIASES", "CONFIG_DEFS", "PREFIXES", "ConfigDef"]


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One setting. ``effect`` "none" marks settings of Kafka that are accepted but have nothing to steer here."""

    name: str
    kind: Kind
    default: Any
    doc: str
    group: str
    effect: bool = True


# What starts with one of these is passed on: to Kafka's clients, to Spark, to topics that the app creates.
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
    ("application.server", STRING, "", "`host:port` under which this instance answers interactive queries."),
    ("state.dir", STRING, None, "Directory of local state; by default `penstock` in the system's temporary directory."),
    (
        "processing.guarantee",
        choice("exactly_once_v2", "at_least_once"),
        "exactly_once_v2",
        "Exactly once is the default here (Kafka: at least once).",
    ),
    (
        "processing.mode",
        choice("micro_batch", "realtime"),
        "micro_batch",
        "`realtime`: milliseconds of latency, at least once, for topologies of one stage over Kafka.",
    ),
    ("commit.interval.ms", DURATION, 100, "How often a micro-batch starts at most; a batch ends with a commit."),
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
        "Which rewrites to apply to the topology.",
    ),
    (
        "ensure.explicit.internal.resource.naming",
        BOOLEAN,
        False,
        "Refuse topologies with generated store or topic names.",
    ),
    ("upgrade.from", OBJECT, None, "Version of Kafka Streams to be compatible with during an upgrade."),
)
_RECORDS = (
    ("default.key.serde", OBJECT, None, "Serde of keys that declare none: a serde, its name, or Kafka's class name."),
    ("default.value.serde", OBJECT, None, "Serde of values that declare none."),
    ("default.list.key.serde.inner", OBJECT, None, "Serde of the items if the default key serde is a list."),
    ("default.list.value.serde.inner", OBJECT, None, "Serde of the items if the default value serde is a list."),
    (
        "default.timestamp.extractor",
        OBJECT,
        None,
        "Function that gives a record's time; by default the record's own timestamp.",
    ),
    ("windowed.inner.class.serde", OBJECT, None, "Serde of the keys inside windowed keys."),
    ("window.size.ms", DURATION, None, "Size of the windows that a windowed serde reads."),
    ("max.task.idle.ms", DURATION, 0, "How long a task waits for records of an empty input partition."),
)
_ERRORS = (
    ("deserialization.exception.handler", HANDLER, "fail", "What to do with records that do not decode."),
    (
        "processing.exception.handler",
        HANDLER,
        "fail",
        "What to do with records for which a function of the user raises.",
    ),
    (
        "production.exception.handler",
        HANDLER,
        "fail",
        "What to do with records that do not encode or cannot be written.",
    ),
    (
        "processing.exception.handler.global.enabled",
        BOOLEAN,
        False,
        "Whether the processing handler serves global tables too.",
    ),
    ("errors.dead.letter.queue.topic.name", STRING, None, "Topic for records that failed, with the reason in headers."),
    ("task.timeout.ms", DURATION, 300_000, "How long a task retries after errors of the log."),
)
_STATE = (
    ("statestore.cache.max.bytes", SIZE, 10 << 20, "0: every update is sent on; else one update per key and batch."),
    ("dsl.store.suppliers.class", OBJECT, None, "Default kind of stores: `rocksdb` (here: LMDB) or `in_memory`."),
    (
        "default.dsl.store",
        choice("rocksDB", "in_memory"),
        "rocksDB",
        "Default kind of stores; rocksDB means on disk (here: LMDB).",
    ),
    ("dsl.store.format", choice("default", "headers"), "default", "Whether stores keep the headers of records."),
    (
        "windowstore.changelog.additional.retention.ms",
        DURATION,
        86_400_000,
        "Added to the retention of windowed changelogs.",
    ),
    ("state.cleanup.delay.ms", DURATION, 600_000, "How long state of tasks that moved away is kept."),
    ("repartition.purge.interval.ms", DURATION, 30_000, "How often read records are removed from repartition topics."),
    ("replication.factor", integer(-1), -1, "Copies of topics that the app creates; -1: the broker's default."),
    ("num.partitions", integer(1), 1, "Partitions of topics that the app creates without a number of their own."),
)
_PENSTOCK = (
    ("penstock.checkpoint.location", STRING, None, "Directory or URL of state segments and Spark's checkpoint."),
    ("penstock.max.records.per.batch", integer(1), 500_000, "Most records that one micro-batch reads from all topics."),
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
        "A micro-batch waits until so many records are there, or penstock.max.wait.ms is over.",
    ),
    ("penstock.max.wait.ms", DURATION, 0, "How long a micro-batch waits for penstock.min.records.per.batch."),
    (
        "penstock.max.batch.ms",
        DURATION,
        0,
        "How long a micro-batch is to take: while they take longer, they are planned with fewer records. 0: no limit.",
    ),
    ("penstock.batch.pause.ms", DURATION, 0, "Pause between the end of a micro-batch and the start of the next one."),
    (
        "penstock.start.timestamp",
        TIMESTAMP,
        None,
        "Where to start without a committed offset, in place of auto.offset.reset: an ISO date and time, or ms.",
    ),
    (
        "penstock.data.loss",
        choice("fail", "continue"),
        "fail",
        "When retention has removed records before they were read: end with an error, or warn and go on.",
    ),
    (
        "penstock.http.port",
        integer(0),
        None,
        "Port of the query server that the application runs; 0: a free one. Not set: no server.",
    ),
    ("penstock.http.host", STRING, "127.0.0.1", "Address that the query server listens on; it knows no passwords."),
    ("penstock.snapshot.interval.batches", integer(1), 100, "Batches between two full snapshots of a task's state."),
    ("penstock.changelog.enabled", BOOLEAN, True, "Whether stores with logging have changelog topics."),
    ("penstock.segments.retained", integer(1), 200, "State segments that are kept behind the newest snapshot."),
    ("penstock.tick.interval.ms", DURATION, 1_000, "How often wall-clock work gets a batch when no records come."),
    ("penstock.state.backend", choice("lmdb", "memory"), "lmdb", "Where local replicas of state are held."),
    (
        "penstock.state.map.size",
        SIZE,
        16 << 30,
        "Most bytes that one task's LMDB replica can hold (address space, not memory).",
    ),
    ("penstock.arrow.max.records", integer(1), 50_000, "Most rows of one Arrow batch between Spark and its workers."),
    ("penstock.shutdown.timeout.ms", DURATION, 30_000, "How long `close()` waits for the running batch."),
    (
        "penstock.kafka.jars",
        LIST,
        (),
        "Jar files of Spark's Kafka connector, or a folder of them, instead of fetching them.",
    ),
    (
        "penstock.realtime.batch.ms",
        DURATION,
        60_000,
        "Length of Spark's batches in real-time mode: how much is done again after a crash.",
    ),
)
_CLIENTS = (
    (
        "security.protocol",
        choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "PLAINTEXT",
        "How to talk to Kafka.",
    ),
    (
        "auto.offset.reset",
        OFFSET_RESET,
        "earliest",
        "Where to start without a committed offset; `by_duration:PT1H`: with the records of the last hour.",
    ),
    ("metrics.recording.level", choice("INFO", "DEBUG", "TRACE"), "INFO", "How much is measured."),
    (
        "metadata.max.age.ms",
        DURATION,
        300_000,
        "How often topics that match a pattern, and new partitions, are looked for.",
    ),
    ("request.timeout.ms", DURATION, 40_000, "How long to wait for an answer of Kafka."),
    ("retry.backoff.ms", DURATION, 100, "Pause before a request is repeated."),
    ("reconnect.backoff.ms", DURATION, 50, "Pause before a connection is tried again."),
    ("reconnect.backoff.max.ms", DURATION, 1_000, "Longest pause before a connection is tried again."),
    ("connections.max.idle.ms", DURATION, 540_000, "When idle connections are closed."),
)
_SCHEMAS = (
    ("schema.registry.url", STRING, None, "The schema registry of Avro, Protobuf and JSON Schema serdes."),
    ("auto.register.schemas", BOOLEAN, True, "Whether schemas that are written are registered, or must be there."),
    ("use.latest.version", BOOLEAN, False, "Write with the subject's newest schema, not with the serde's own."),
    ("normalize.schemas", BOOLEAN, False, "Whether the registry brings schemas into a normal form first."),
    (
        "key.subject.name.strategy",
        OBJECT,
        "topic",
        "How subjects of keys are named: `topic`, `record`, `topic_record`, Kafka's class name, or a function.",
    ),
    ("value.subject.name.strategy", OBJECT, "topic", "How subjects of values are named."),
    ("key.schema.id.serializer", STRING, "prefix", "Where the id of a key's schema goes: `prefix` or `header`."),
    ("value.schema.id.serializer", STRING, "prefix", "Where the id of a value's schema goes: `prefix` or `header`."),
    ("json.fail.invalid.schema", BOOLEAN, False, "Whether values are checked against their JSON Schema."),
)
# Settings of Kafka Streams whose job Spark does, or that only concern Java: accepted, so that a config can be shared.
_WITHOUT_EFFECT = (
    "acceptable.recovery.lag", "num.standby.replicas",
    "allow.os.group.write.access", "buffered.records.per.partition", "built.in.metrics.version", "config.providers",
    "default.client.supplier", "default.list.key.serde.type", "default.list.value.serde.type", "enable.metrics.push",
    "group.protocol", "log.summary.interval.ms", "max.poll.records", "max.warmup.replicas",
    "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms", "metric.reporters",
    "metrics.num.samples", "metrics.sample.window.ms",
    "num.stream.threads", "poll.ms", "probing.rebalance.interval.ms", "processor.wrapper.class",
    "rack.aware.assignment.non_overlap_cost", "rack.aware.assignment.strategy", "rack.aware.assignment.tags",
    "rack.aware.assignment.traffic_cost", "receive.buffer.bytes", "rocksdb.config.setter", "send.buffer.bytes",
    "state.cleanup.dir.max.age.ms", "task.assignor.class",
)  # fmt: skip


def _table() -> dict[str, ConfigDef]:
    groups: dict[str, tuple[tuple[str, Kind, Any, str], ...]] = {
        "Application": _APP,
        "Records": _RECORDS,
        "Errors": _ERRORS,
        "State": _STATE,
        "Penstock": _PENSTOCK,
        "Schemas": _SCHEMAS,
        "Clients": _CLIENTS,
    }
    table = {row[0]: ConfigDef(*row, group) for group, rows in groups.items() for row in rows}
    for name in _WITHOUT_EFFECT:
        table[name] = ConfigDef(name, ANY, None, "Accepted for compatibility.", "No effect", effect=False)
    return table


CONFIG_DEFS: Mapping[str, ConfigDef] = MappingProxyType(_table())
