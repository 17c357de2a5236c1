"""The settings of the source of changes, under Debezium's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.java_text.hashing import hash_order
from penstock.connect.config import (
    Check,
    ConfigDef,
    Importance,
    Kind,
    Model,
    Password,
    Range,
    Refused,
    Setting,
)
from penstock.connect.connectors.postgres.captured_tables import REPLICA_IDENTITY
from penstock.connect.connectors.postgres.column_masks import Patterns
from penstock.connect.data import SettingError

__all__ = ["CONFIG", "POSTGRES_MODEL", "parse_settings", "snapshot_mode"]

SNAPSHOT_MODES = ("always", "initial", "initial_only", "configuration_based", "no_data", "when_needed", "custom")
ADJUSTMENTS = ("none", "avro", "avro_unicode")
NAMINGS = ("io.debezium.schema.SchemaTopicNamingStrategy", "io.debezium.schema.DefaultTopicNamingStrategy")
TIMES = ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds")
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these texts, in letters of any case, with Debezium's message."""

    texts: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> None:
        if str(value).strip().lower() not in self.texts:
            raise SettingError.invalid(name, value, f"Value must be one of {', '.join(hash_order(self.texts))}")

    def __str__(self) -> str:
        return f"[{', '.join(self.texts)}]"


_BASED = "snapshot.mode.configuration.based"
_BASED_DATA, _BASED_STREAM = f"{_BASED}.snapshot.data", f"{_BASED}.start.stream"
_BASED_MODES: Mapping[tuple[bool, bool], str] = {
    (True, True): "always",
    (True, False): "always_only",  # not a mode of its own
    (False, True): "no_data",
}


def parse_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of all settings, choices in small letters.

    Raises:
        SettingError: One is wrong or missing.
    """
    parsed = CONFIG.parse(settings)
    for name, setting in CONFIG.settings.items():
        if isinstance(setting.rule, Choice):
            parsed[name] = parsed[name].strip().lower()
    parsed["snapshot.mode"] = snapshot_mode(parsed)
    return parsed


def snapshot_mode(parsed: Mapping[str, Any]) -> str | None:
    """Return the mode of snapshots, in which configuration_based is one of the others; None: nothing is read."""
    mode: str = parsed["snapshot.mode"].strip().lower()
    return _BASED_MODES.get((parsed[_BASED_DATA], parsed[_BASED_STREAM])) if mode == "configuration_based" else mode


def _check_operations(name: str, value: Any) -> None:
    operations = [each.strip() for each in value or ()]
    for each in operations:
        if each == "none" and len(operations) > 1:
            raise SettingError.invalid(name, each, "The value 'none' stands alone")
        if each not in ("c", "u", "d", "t", "none"):
            raise SettingError.invalid(name, each, "Invalid operation")


def _check_keys(name: str, value: Any) -> None:
    pattern = r"\s*([^:]+):([^:,]+(,[^:,]+)*)\s*"
    for each in str(value or "").split(";"):
        if each.strip() and not re.fullmatch(pattern, each):
            raise SettingError.invalid(name, value, f"{each} has an invalid format (expecting '^{pattern}$')")


_IDENTITIES = (  # as Debezium shows it
    r"(?i)^\s*(?<tablepredicate>[^\s:]+):(?<replicaidentity>DEFAULT|(INDEX) (?<indexname>.\w*)|FULL|NOTHING)\s*$"
)


def _check_identities(name: str, value: Any) -> None:
    for each in value.split(",") if value else ():
        if not REPLICA_IDENTITY.fullmatch(each):
            raise SettingError.invalid(name, each, f"{each} has an invalid format (expecting '{_IDENTITIES}')")


def _check_prefix(name: str, value: Any) -> None:
    if not re.fullmatch(r"[a-zA-Z0-9_.-]+", str(value or "")):
        raise SettingError.invalid(
            name,
            value,
            f"{value} has invalid format (only the underscore, hyphen, dot and alphanumeric characters are allowed)",
        )


def _check_slot(name: str, value: Any) -> None:
    if not re.fullmatch(r"[a-z0-9_]{1,63}", str(value or "")):
        raise SettingError.invalid(
            name,
            value,
            "Valid replication slot name must contain only digits, lowercase characters and underscores with "
            "length <= 63",
        )


def _check_patterns(name: str, value: Any) -> None:
    Patterns.of(value or (), name)


def _check_channels(name: str, value: Any) -> None:
    for each in value or ():
        if each.strip() != "source":
            raise SettingError.invalid(name, each, "signals come from the table of signals alone: source")


def _check_notifications(name: str, value: Any) -> None:
    for each in value or ():
        if each.strip() not in ("sink", "log"):
            raise SettingError.invalid(name, each, "there are the channels sink and log")


def _check_naming(name: str, value: Any) -> None:
    if value not in NAMINGS:
        raise SettingError.invalid(name, value, f"one of {', '.join(NAMINGS)}; change topics by RegexRouter")


_PATTERNS = Check(_check_patterns, "list of regular expressions")


def _patterns(name: str, doc: str) -> Setting:
    return Setting(name=name, kind=Kind.LIST, default="", rule=_PATTERNS, doc=doc)


CONFIG = ConfigDef(
    [
        Setting(
            name="topic.prefix",
            kind=Kind.STRING,
            rule=Check(_check_prefix, "letters, digits, underscores, hyphens and dots"),
            importance=Importance.HIGH,
            doc="The first part of topics' names.",
        ),
        Setting(
            name="database.hostname", kind=Kind.STRING, importance=Importance.HIGH, doc="The server, or its socket."
        ),
        Setting(name="database.port", kind=Kind.INT, default=5432, rule=Range(1, 65535), doc="The server's port."),
        Setting(
            name="database.user", kind=Kind.STRING, default="", doc="A user that may replicate and read the tables."
        ),
        Setting(name="database.password", kind=Kind.PASSWORD, default=Password(""), doc="The user's password."),
        Setting(name="database.dbname", kind=Kind.STRING, importance=Importance.HIGH, doc="The database."),
        Setting(
            name="slot.name",
            kind=Kind.STRING,
            default="debezium",
            rule=Check(_check_slot, "digits, small letters and underscores"),
            doc="The replication slot; one a connector.",
        ),
        Setting(
            name="plugin.name",
            kind=Kind.STRING,
            default="pgoutput",
            rule=Choice(("pgoutput",)),
            doc="The slot's plugin.",
        ),
        Setting(name="publication.name", kind=Kind.STRING, default="dbz_publication", doc="The publication."),
        Setting(
            name="publication.autocreate.mode",
            kind=Kind.STRING,
            default="all_tables",
            rule=Choice(("all_tables", "filtered", "no_tables", "disabled")),
            doc="How a publication that is not there is made: of all tables, of those included, of none, or not.",
        ),
        Setting(
            name="replica.identity.autoset.values",
            kind=Kind.STRING,
            default="",
            rule=Check(_check_identities, "schema.table:identity,..."),
            doc="The replica identities that tables get at the start, by regular expressions of tables: DEFAULT, FULL, "
            "NOTHING, or INDEX and its name; others stay as they are.",
        ),
        Setting(
            name="publish.via.partition.root",
            kind=Kind.BOOLEAN,
            default=False,
            doc="A publication that is made has the changes of partitions as those of the table they belong to.",
        ),
        Setting(
            name="slot.drop.on.stop", kind=Kind.BOOLEAN, default=False, doc="Delete the slot when the task is stopped."
        ),
        Setting(
            name="database.initial.statements",
            kind=Kind.STRING,
            default="",
            doc="Statements that are run on each new connection, separated by semicolons; two of them are one.",
        ),
        Setting(
            name="database.query.timeout.ms",
            kind=Kind.INT,
            default=600_000,
            rule=Range(0),
            doc="The longest time that one statement may take; 0: any.",
        ),
        Setting(
            name="database.sslmode",
            kind=Kind.STRING,
            default="prefer",
            rule=Choice(SSL_MODES),
            doc="Whether the connection is encrypted, and the server's certificate checked.",
        ),
        Setting(name="database.sslcert", kind=Kind.STRING, default="", doc="A file with the client's certificate."),
        Setting(name="database.sslkey", kind=Kind.STRING, default="", doc="A file with the client's private key."),
        Setting(name="database.sslpassword", kind=Kind.PASSWORD, default=Password(""), doc="The key's password."),
        Setting(
            name="database.sslrootcert", kind=Kind.STRING, default="", doc="A file with the authorities of servers."
        ),
        Setting(name="database.tcpKeepAlive", kind=Kind.BOOLEAN, default=True, doc="Keep connections alive."),
        _patterns("schema.include.list", "Regular expressions of schemas; none: all."),
        _patterns("schema.exclude.list", "Regular expressions of schemas to leave out."),
        _patterns("table.include.list", "Regular expressions of schema.table; none: all."),
        _patterns("table.exclude.list", "Regular expressions of tables to leave out."),
        _patterns(
            "column.include.list",
            "Regular expressions of schema.table.column: no other column comes out, but those of keys, in keys.",
        ),
        _patterns("column.exclude.list", "Regular expressions of columns that do not come out, but in keys."),
        Setting(
            name="message.key.columns",
            kind=Kind.STRING,
            default="",
            rule=Check(_check_keys, "schema.table:column,column;..."),
            doc="The columns of keys, by regular expressions of tables, instead of those of the primary key.",
        ),
        Setting(
            name="skipped.operations",
            kind=Kind.LIST,
            default="t",
            rule=Check(_check_operations, "list of c, u, d, t; or none"),
            doc="Changes that do not come out: c (inserts), u (updates), d (deletions), t (truncations).",
        ),
        Setting(
            name=_BASED_DATA,
            kind=Kind.BOOLEAN,
            default=False,
            doc="With snapshot.mode=configuration_based: read the rows at each start.",
        ),
        Setting(
            name=f"{_BASED}.snapshot.schema",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Changes nothing: the columns of tables are always read.",
        ),
        Setting(
            name=_BASED_STREAM,
            kind=Kind.BOOLEAN,
            default=False,
            doc="With snapshot.mode=configuration_based: read the changes.",
        ),
        Setting(
            name="snapshot.isolation.mode",
            kind=Kind.STRING,
            default="serializable",
            rule=Choice(("serializable", "repeatable_read", "read_committed", "read_uncommitted")),
            doc="What the rows are read as. Always those of one moment, in a transaction of repeatable reads: each "
            "mode may have them so.",
        ),
        Setting(
            name="event.processing.failure.handling.mode",
            kind=Kind.STRING,
            default="fail",
            rule=Choice(("skip", "warn", "fail")),
            doc="What happens to a row or change with a value that its column does not take: the task fails, "
            "or it does not come out, with a line in the log (warn) or without (skip). A signal in such a row is not "
            "obeyed.",
        ),
        Setting(
            name="snapshot.mode",
            kind=Kind.STRING,
            default="initial",
            rule=Choice(SNAPSHOT_MODES),
            importance=Importance.HIGH,
            doc="initial: the rows first, then changes; always: so at each start; initial_only: the rows; no_data: "
            "changes from now on; when_needed: the rows where there are no offsets, or changes "
            "behind them may be missing. initial_only leaves no slot; always: what changed while the connector was "
            "away comes as rows, so that deletions in between do not come.",
        ),
        _patterns("snapshot.include.collection.list", "Regular expressions of the tables whose rows are read first."),
        Setting(
            name="snapshot.select.statement.overrides",
            kind=Kind.LIST,
            default="",
            doc="Tables whose rows are read by the statement in snapshot.select.statement.overrides.SCHEMA.TABLE.",
        ),
        Setting(name="snapshot.delay.ms", kind=Kind.LONG, default=0, rule=Range(0), doc="A wait before the rows."),
        Setting(name="streaming.delay.ms", kind=Kind.LONG, default=0, rule=Range(0), doc="A wait after the rows."),
        Setting(
            name="decimal.handling.mode",
            kind=Kind.STRING,
            default="precise",
            rule=Choice(("precise", "double", "string")),
            doc="Decimals as Connect's Decimal, as text, or as float.",
        ),
        Setting(
            name="time.precision.mode",
            kind=Kind.STRING,
            default="adaptive",
            rule=Choice(TIMES),
            doc="Times as Debezium's types of the column's precision, or all as one kind of type.",
        ),
        Setting(
            name="interval.handling.mode",
            kind=Kind.STRING,
            default="numeric",
            rule=Choice(("numeric", "string")),
            doc="Intervals as microseconds, or as texts such as P1Y2M3DT4H5M6S.",
        ),
        Setting(
            name="hstore.handling.mode",
            kind=Kind.STRING,
            default="json",
            rule=Choice(("json", "map")),
            doc="Values of hstore as JSON texts, or as maps.",
        ),
        Setting(
            name="binary.handling.mode",
            kind=Kind.STRING,
            default="bytes",
            rule=Choice(("bytes", "base64", "base64-url-safe", "hex")),
            doc="Bytes as bytes or as texts.",
        ),
        Setting(
            name="include.unknown.datatypes",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Columns of types that have no form come out as bytes; else they are left out.",
        ),
        Setting(
            name="unavailable.value.placeholder",
            kind=Kind.STRING,
            default="__debezium_unavailable_value",
            doc="Stands for large values that an update did not touch.",
        ),
        Setting(
            name="provide.transaction.metadata",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Write the beginnings and ends of transactions to a topic, and the place of each change in its own.",
        ),
        Setting(
            name="topic.transaction",
            kind=Kind.STRING,
            default="transaction",
            doc="The end of the name of the topic of transactions.",
        ),
        _patterns(
            "message.prefix.include.list",
            "Regular expressions of the prefixes of messages (pg_logical_emit_message) that come out; none: all.",
        ),
        _patterns("message.prefix.exclude.list", "Regular expressions of the prefixes of messages to leave out."),
        Setting(
            name="heartbeat.interval.ms",
            kind=Kind.INT,
            default=0,
            rule=Range(0),
            doc="How often a heartbeat is written, with the position of the connector; 0: never.",
        ),
        Setting(
            name="heartbeat.action.query",
            kind=Kind.STRING,
            default="",
            doc="A statement that is run with each heartbeat.",
        ),
        Setting(
            name="topic.heartbeat.prefix",
            kind=Kind.STRING,
            default="__debezium-heartbeat",
            doc="The beginning of the name of the topic of heartbeats; topic.prefix is its end.",
        ),
        Setting(
            name="signal.data.collection",
            kind=Kind.LIST,
            default="",
            doc="The tables (schema.table) whose rows are signals: id, type, data.",
        ),
        Setting(
            name="signal.enabled.channels",
            kind=Kind.LIST,
            default="source",
            rule=Check(_check_channels, "list of source"),
            doc="Where signals come from: source is the table of signals.",
        ),
        Setting(
            name="incremental.snapshot.chunk.size",
            kind=Kind.INT,
            default=1024,
            rule=Range(1),
            doc="The number of rows that an incremental snapshot reads at once.",
        ),
        Setting(
            name="notification.enabled.channels",
            kind=Kind.LIST,
            default="",
            rule=Check(_check_notifications, "list of sink, log"),
            doc="Where notifications of snapshots go: sink is a topic, log the log.",
        ),
        Setting(name="notification.sink.topic.name", kind=Kind.STRING, default="", doc="The topic of notifications."),
        Setting(
            name="schema.name.adjustment.mode",
            kind=Kind.STRING,
            default="none",
            rule=Choice(ADJUSTMENTS),
            doc="Names of schemas as they are, or so that Avro can have them.",
        ),
        Setting(
            name="field.name.adjustment.mode",
            kind=Kind.STRING,
            default="none",
            rule=Choice(ADJUSTMENTS),
            doc="Names of fields as they are, or so that Avro can have them.",
        ),
        Setting(
            name="schema.refresh.mode",
            kind=Kind.STRING,
            default="columns_diff",
            rule=Choice(("columns_diff", "columns_diff_exclude_unchanged_toast")),
            doc="When schemas are read anew: with each change of a table's columns, either way.",
        ),
        Setting(
            name="include.schema.comments",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Schemas have the comments of columns.",
        ),
        _patterns(
            "column.propagate.source.type",
            "Regular expressions of columns whose schemas say what their types are in the database.",
        ),
        _patterns(
            "datatype.propagate.source.type",
            "Regular expressions of types (schema.table.type) whose columns' schemas say so.",
        ),
        Setting(
            name="skip.messages.without.change",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Leave updates out that change no column that comes out (with REPLICA IDENTITY FULL).",
        ),
        Setting(
            name="extended.headers.enabled",
            kind=Kind.BOOLEAN,
            default=True,
            doc="Records have headers that name the connector, its task and its run.",
        ),
        Setting(
            name="guardrail.collections.max",
            kind=Kind.INT,
            default=0,
            rule=Range(0),
            doc="The largest number of tables that are captured; 0: any.",
        ),
        Setting(
            name="guardrail.collections.limit.action",
            kind=Kind.STRING,
            default="warn",
            rule=Choice(("warn", "fail")),
            doc="What happens if there are more tables.",
        ),
        Setting(
            name="xmin.fetch.interval.ms",
            kind=Kind.LONG,
            default=0,
            rule=Range(0),
            doc="How often source.xmin is read from the slot; 0: never.",
        ),
        Setting(
            name="flush.lsn.source",
            kind=Kind.BOOLEAN,
            default=True,
            doc="The server may forget what is written. False: you advance the slot.",
        ),
        Setting(
            name="lsn.flush.mode",
            kind=Kind.STRING,
            default="connector",
            rule=Choice(("connector", "manual", "connector_and_driver")),
            doc="manual: as flush.lsn.source=false.",
        ),
        Setting(
            name="topic.naming.strategy",
            kind=Kind.STRING,
            default="io.debezium.schema.SchemaTopicNamingStrategy",
            rule=Check(_check_naming, "a class of Debezium"),
            doc="Topics are prefix.schema.table; DefaultTopicNamingStrategy: the same.",
        ),
        Setting(
            name="topic.delimiter", kind=Kind.STRING, default=".", doc="Stands between the parts of a topic's name."
        ),
        Setting(
            name="tombstones.on.delete",
            kind=Kind.BOOLEAN,
            default=True,
            doc="A deletion is followed by a record without value, for topics that are compacted.",
        ),
        Setting(
            name="max.batch.size",
            kind=Kind.INT,
            default=2048,
            rule=Range(1),
            doc="Approximate number of records in a batch.",
        ),
        Setting(
            name="max.queue.size",
            kind=Kind.INT,
            default=8192,
            rule=Range(1),
            doc="Approximate number of changes in one request.",
        ),
        Setting(
            name="poll.interval.ms", kind=Kind.LONG, default=500, rule=Range(1), doc="The wait when there is no change."
        ),
    ]
)

_ONE_READER = "one cursor reads one table after another."
_BY_SQL = "the slot is read by SQL, without a replication connection."
_RETRIES = "a failure that may pass is tried again without a limit."
_LINEAGE = "nothing is reported to OpenLineage."
_METRICS = "the worker has its own metrics."

POSTGRES_MODEL = Model(
    "Debezium's connector for PostgreSQL",
    refused={
        "slot.failover": Refused("Make the slot yourself, with failover.", unless=("false",)),
        "slot.stream.params": "The slot is read without parameters of the plugin.",
        "database.sslfactory": "Classes of Java are not loaded; set database.sslmode and its files.",
        "transaction.metadata.factory": Refused(
            "Classes of Java are not loaded.",
            unless=("io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory",),
        ),
        "snapshot.mode.custom.name": "Classes of Java are not loaded; choose another snapshot.mode.",
        "snapshot.mode.configuration.based.snapshot.on.": Refused("Set snapshot.mode=when_needed.", unless=("false",)),
        "snapshot.query.mode": Refused("Set snapshot.select.statement.overrides.", unless=("select_all",)),
        "snapshot.query.mode.custom.name": "Set snapshot.select.statement.overrides.",
        "snapshot.locking.mode": Refused("Tables are not locked: the rows are those of one moment.", unless=("none",)),
        "snapshot.locking.mode.custom.name": "Tables are not locked: the rows are those of one moment.",
        "converters": "Classes of Java are not loaded; use the transformations of the connector.",
        "post.processors": "Classes of Java are not loaded; use the transformations of the connector.",
        "read.only": Refused("An incremental snapshot writes to the table of signals.", unless=("false",)),
        "incremental.snapshot.watermarking.strategy": Refused(
            "Windows are opened and closed by inserts.", unless=("insert_insert",)
        ),
        "incremental.snapshot.allow.schema.changes": Refused("Schemas are read with each window.", unless=("true",)),
        "signal.kafka.": "Signals come from the table of signals.",
        "signal.file": "Signals come from the table of signals.",
        "sourceinfo.struct.maker": "Classes of Java are not loaded.",
    },
    idle={
        "errors.max.retries": _RETRIES,
        "heartbeat.topics.prefix": "it has none in Debezium either: set topic.heartbeat.prefix.",
        "signal.poll.interval.ms": "signals come with the stream.",
        "snapshot.tables.order.by.row.count": "it has none in Debezium for PostgreSQL either.",
        "topic.cache.size": "names of topics are not kept.",
        "table.ignore.builtin": "tables of the system are never read.",
        "slot.max.retries": _RETRIES,
        "slot.retry.delay.ms": _RETRIES,
        "retriable.restart.connector.wait.ms": _RETRIES,
        "status.update.interval.ms": _BY_SQL,
        "lsn.flush.timeout.ms": _BY_SQL,
        "lsn.flush.timeout.action": _BY_SQL,
        "offset.mismatch.strategy": "the slot is always compared with the stored offset.",
        "snapshot.max.threads": _ONE_READER,
        "snapshot.max.threads.multiplier": _ONE_READER,
        "legacy.snapshot.max.threads": _ONE_READER,
        "snapshot.fetch.size": "rows are copied as they come.",
        "query.fetch.size": "rows are copied as they come.",
        "snapshot.lock.timeout.ms": "no lock is taken.",
        "max.queue.size.in.bytes": "there is no queue: changes are read when they are asked for.",
        "connection.validation.timeout.ms": "a connection attempt takes ten seconds at most.",
        "executor.shutdown.timeout.ms": "there are no further threads.",
        "statistics.metrics.enabled": _METRICS,
        "custom.metric.tags": _METRICS,
        "custom.sanitize.pattern": "settings are not written to the log.",
        "memory.management.": "there are no such classes.",
        "openlineage.": _LINEAGE,
        "internal.": "settings of Debezium's own tests.",
        "database.server.name": "topic.prefix is its name since Debezium 2.",
    },
    own=("column.mask.", "column.truncate.to.", "snapshot.select.statement.overrides."),
)
