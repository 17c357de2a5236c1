"""The settings of the source of changes, under Debezium's names."""

from __future__ import annotations

from penstock.connect.config import ConfigDef, EachRegex, Importance, Kind, OneOf, Password, Range, Setting

__all__ = ["CONFIG"]

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
            rule=OneOf(("all_tables", "filtered", "disabled")),
            doc="How a publication that is not there is made: of all tables, of those included, or not.",
        ),
        Setting(
            name="table.include.list",
            kind=Kind.LIST,
            default="",
            rule=EachRegex(),
            doc="Regular expressions of schema.table; none: all.",
        ),
        Setting(
            name="table.exclude.list",
            kind=Kind.LIST,
            default="",
            rule=EachRegex(),
            doc="Regular expressions of tables to leave out.",
        ),
        Setting(
            name="snapshot.mode",
            kind=Kind.STRING,
            default="initial",
            rule=OneOf(("initial", "initial_only", "no_data")),
            importance=Importance.HIGH,
            doc="initial: the rows first, then changes; initial_only: the rows; no_data: changes from now on.",
        ),
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
            rule=OneOf(("adaptive", "connect")),
            doc="Times as Debezium's types, to the microsecond, or as Connect's, to the millisecond.",
        ),
        Setting(
            name="tombstones.on.delete",
            kind=Kind.BOOLEAN,
            default=True,
            doc="A deletion is followed by a record without value, for topics that are compacted.",
        ),
        Setting(name="max.batch.size", kind=Kind.INT, default=2048, rule=Range(1), doc="About the records of a batch."),
        Setting(
            name="max.queue.size",
            kind=Kind.INT,
            default=8192,
            rule=Range(1),
            doc="About the changes that are asked for at once.",
        ),
        Setting(
            name="poll.interval.ms", kind=Kind.LONG, default=500, rule=Range(1), doc="The wait when there is no change."
        ),
    ]
)
