"""The settings of the source of changes, under Debezium's names."""

from __future__ import annotations

import re
from typing import Any

from penstock.connect.config import (
    Check,
    ConfigDef,
    Importance,
    Kind,
    Model,
    OneOf,
    Password,
    Range,
    Refused,
    Setting,
)
from penstock.connect.connectors.postgres.masks import Patterns
from penstock.connect.data import SettingError

__all__ = ["CONFIG", "POSTGRES_MODEL"]

TIMES = ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds")
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


def _check_operations(name: str, value: Any) -> None:
    for each in value or ():
        if each.strip() not in ("c", "u", "d", "t", "none"):
            raise SettingError.invalid(name, each, "Value must be one of c, u, d, t, none")
    if value and len(value) > 1 and "none" in [each.strip() for each in value]:
        raise SettingError.invalid(name, value, "'none' stands alone")


def _check_keys(name: str, value: Any) -> None:
    for each in str(value or "").split(";"):
        if each.strip() and not re.fullmatch(r"\s*[^:\s]+\s*:\s*[^:\s][^:]*", each):
            raise SettingError.invalid(name, value, "Write it as schema.table:column,column;schema.table:column")


def _check_patterns(name: str, value: Any) -> None:
    Patterns.of(value or (), name)


_PATTERNS = Check(_check_patterns, "list of regular expressions")


def _patterns(name: str, doc: str) -> Setting:
    return Setting(name=name, kind=Kind.LIST, default="", rule=_PATTERNS, doc=doc)


CONFIG = ConfigDef(
    [
        Setting(
            name="topic.prefix", kind=Kind.STRING, importance=Importance.HIGH, doc="The first part of topics' names."
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
        Setting(name="slot.name", kind=Kind.STRING, default="debezium", doc="The replication slot; one a connector."),
        Setting(
            name="plugin.name",
            kind=Kind.STRING,
            default="pgoutput",
            rule=OneOf(("pgoutput",)),
            doc="The slot's plugin.",
        ),
        Setting(name="publication.name", kind=Kind.STRING, default="dbz_publication", doc="The publication."),
        Setting(
            name="publication.autocreate.mode",
            kind=Kind.STRING,
            default="all_tables",
            rule=OneOf(("all_tables", "filtered", "no_tables", "disabled")),
            doc="How a publication that is not there is made: of all tables, of those included, of none, or not.",
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
            rule=OneOf(SSL_MODES),
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
            name="snapshot.mode",
            kind=Kind.STRING,
            default="initial",
            rule=OneOf(("initial", "always", "initial_only", "no_data", "when_needed")),
            importance=Importance.HIGH,
            doc="initial: the rows first, then changes; always: so at each start; initial_only: the rows; no_data: "
            "changes from now on; when_needed: the rows where there are no offsets, or the slot was deleted.",
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
            rule=OneOf(("precise", "string", "double")),
            doc="Decimals as Connect's Decimal, as text, or as float.",
        ),
        Setting(
            name="time.precision.mode",
            kind=Kind.STRING,
            default="adaptive",
            rule=OneOf(TIMES),
            doc="Times as Debezium's types of the column's precision, or all as one kind of type.",
        ),
        Setting(
            name="interval.handling.mode",
            kind=Kind.STRING,
            default="numeric",
            rule=OneOf(("numeric", "string")),
            doc="Intervals as microseconds, or as texts such as P1Y2M3DT4H5M6S.",
        ),
        Setting(
            name="hstore.handling.mode",
            kind=Kind.STRING,
            default="json",
            rule=OneOf(("json", "map")),
            doc="Values of hstore as JSON texts, or as maps.",
        ),
        Setting(
            name="binary.handling.mode",
            kind=Kind.STRING,
            default="bytes",
            rule=OneOf(("bytes", "base64", "base64-url-safe", "hex")),
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

_SNAPSHOTS = "There are no snapshots by signals: reset the connector's offsets for a new snapshot."
_ONE_READER = "one cursor reads one table after another."
_BY_SQL = "the slot is read by SQL, without a replication connection."
_TRANSACTIONS = Refused("Topics of transactions are not written.", unless=("false",))
_HEARTBEAT = Refused(
    "The slot advances with each read, even if no table changes: no heartbeat is needed.", unless=("0",)
)
_NAMES = Refused("Names of schemas and fields are those of the database.", unless=("none",))
_SCHEMA_DOCS = "Schemas do not say what the columns' types are in the database."
_RETRIES = "a failure that may pass is tried again without a limit."
_LINEAGE = "nothing is reported to OpenLineage."
_METRICS = "the worker has its own metrics."

POSTGRES_MODEL = Model(
    "Debezium's connector for PostgreSQL",
    refused={
        "replica.identity.autoset.values": "Run ALTER TABLE ... REPLICA IDENTITY yourself.",
        "slot.failover": Refused("Make the slot yourself, with failover.", unless=("false",)),
        "slot.stream.params": "The slot is read without parameters of the plugin.",
        "database.sslfactory": "Classes of Java are not loaded; set database.sslmode and its files.",
        "xmin.fetch.interval.ms": Refused("The field xmin stays empty.", unless=("0",)),
        "lsn.flush.mode": Refused("The server may forget what is written and committed.", unless=("connector",)),
        "flush.lsn.source": Refused("The server may forget what is written and committed.", unless=("true",)),
        "event.processing.failure.handling.mode": Refused(
            "A change that cannot be read fails the task.", unless=("fail",)
        ),
        "provide.transaction.metadata": _TRANSACTIONS,
        "transaction.metadata.factory": "Topics of transactions are not written.",
        "topic.transaction": "Topics of transactions are not written.",
        "snapshot.mode.custom.name": "Classes of Java are not loaded; choose another snapshot.mode.",
        "snapshot.mode.configuration.based.": Refused("Choose another snapshot.mode.", unless=("false",)),
        "snapshot.query.mode": Refused("Set snapshot.select.statement.overrides.", unless=("select_all",)),
        "snapshot.query.mode.custom.name": "Set snapshot.select.statement.overrides.",
        "snapshot.locking.mode": Refused("Tables are not locked: the rows are those of one moment.", unless=("none",)),
        "snapshot.locking.mode.custom.name": "Tables are not locked: the rows are those of one moment.",
        "snapshot.isolation.mode": Refused(
            "The rows are those of one moment, in a transaction of repeatable reads.",
            unless=("repeatable_read", "serializable"),
        ),
        "snapshot.tables.order.by.row.count": Refused(
            "Tables are read in the order of their names.", unless=("disabled",)
        ),
        "guardrail.": Refused("Name the tables in table.include.list.", unless=("0", "warn")),
        "schema.name.adjustment.mode": _NAMES,
        "field.name.adjustment.mode": _NAMES,
        "schema.refresh.mode": Refused("Schemas follow the columns that the stream has.", unless=("columns_diff",)),
        "message.prefix.": "Messages of applications (pg_logical_emit_message) are not read.",
        "converters": "Classes of Java are not loaded; use the transformations of the connector.",
        "post.processors": "Classes of Java are not loaded; use the transformations of the connector.",
        "heartbeat.": _HEARTBEAT,
        "topic.heartbeat.prefix": _HEARTBEAT,
        "signal.": _SNAPSHOTS,
        "incremental.snapshot.": _SNAPSHOTS,
        "read.only": Refused(_SNAPSHOTS, unless=("false",)),
        "notification.": "No notifications are sent; the state of the connector is that of its tasks.",
        "topic.naming.strategy": Refused(
            "Topics are prefix.schema.table; change them by RegexRouter.",
            unless=("io.debezium.schema.SchemaTopicNamingStrategy",),
        ),
        "topic.cache.size": "Names of topics are not kept.",
        "include.schema.comments": Refused(_SCHEMA_DOCS, unless=("false",)),
        "column.propagate.source.type": _SCHEMA_DOCS,
        "datatype.propagate.source.type": _SCHEMA_DOCS,
        "sourceinfo.struct.maker": "Classes of Java are not loaded.",
        "table.ignore.builtin": Refused("Tables of the system are never read.", unless=("true",)),
        "skip.messages.without.change": Refused("Set skipped.operations, or use a Filter.", unless=("false",)),
        "extended.headers.enabled": Refused("Headers of the connector's context are not written.", unless=("false",)),
        "errors.max.retries": Refused(f"It never gives up: {_RETRIES}", unless=("-1",)),
    },
    idle={
        "slot.max.retries": _RETRIES,
        "slot.retry.delay.ms": _RETRIES,
        "retriable.restart.connector.wait.ms": _RETRIES,
        "status.update.interval.ms": _BY_SQL,
        "lsn.flush.timeout.ms": _BY_SQL,
        "lsn.flush.timeout.action": _BY_SQL,
        "offset.mismatch.strategy": _BY_SQL,
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
