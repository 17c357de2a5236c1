"""Confluent's JDBC source and sink: their settings that the connectors here do not have."""

from __future__ import annotations

from penstock.connect.config import Model, Refused

__all__ = ["SQL_SINK_MODEL", "SQL_SOURCE_MODEL"]

_CREDENTIALS = Refused(
    "Set connection.user and connection.password; the worker's config providers read them from files.",
    unless=("io.confluent.connect.jdbc.util.DefaultJdbcCredentialsProvider",),
)
_CALENDAR = Refused(
    "Dates follow the Gregorian calendar of today, also before 1582: set PROLEPTIC_GREGORIAN.",
    unless=("proleptic_gregorian",),
)
_AGAIN = "a database that cannot be reached is tried again without a limit."
_DIALECT = "the dialect is that of connection.url."
_BUFFER = "rows are read when they are asked for, batch.max.rows at a time."

SQL_SOURCE_MODEL = Model(
    "Confluent's JDBC source",
    refused={"jdbc.credentials.provider.": _CREDENTIALS, "date.calendar.system": _CALENDAR},
    idle={
        "connection.attempts": _AGAIN,
        "connection.backoff.ms": _AGAIN,
        "dialect.name": _DIALECT,
        "max.buffer.size": _BUFFER,
        "poll.linger.ms": _BUFFER,
        "table.monitoring.startup.polling.limit.ms": "tables are listed when the tasks are made.",
        "engine.shutdown.timeout": "a query ends with the task.",
    },
)
SQL_SINK_MODEL = Model(
    "Confluent's JDBC sink",
    refused={"jdbc.credentials.provider.": _CREDENTIALS, "date.calendar.system": _CALENDAR},
    idle={
        "connection.attempts": _AGAIN,
        "connection.backoff.ms": _AGAIN,
        "dialect.name": _DIALECT,
        "mssql.use.merge.holdlock": "rows of SQL Server are updated or inserted without MERGE.",
    },
)
