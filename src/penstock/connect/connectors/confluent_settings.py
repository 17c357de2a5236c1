"""Confluent's HTTP and JDBC connectors: their settings that the connectors here do not have."""

from __future__ import annotations

from penstock.connect.config import Model, Refused

__all__ = ["HTTP_SINK_MODEL", "HTTP_SOURCE_MODEL", "SQL_SINK_MODEL", "SQL_SOURCE_MODEL"]

_HEADERS = "Set headers, as name:value,name:value."
_SECRETS = "Set authorization, the header of requests: Basic ..., Bearer ..."
_TLS = "The environment's variable SSL_CERT_FILE names the authorities of servers; client certificates are not sent."
_PROXY = "Set the environment's variable HTTPS_PROXY for the worker."
_AGAIN = "Requests that may succeed later are sent again, with a wait that doubles up to five minutes."
_PUTS = "Requests that may succeed later are sent again until they do."
_PAGES = "Set pagination to cursor, link or page, with its settings."
_BODY = "Requests have no body: the parameters are those of url and of the pages."
_JSON = "Bodies are JSON: the value of a record, or a list of batch.size values."
_REPORTS = "Answers are not written to topics."

HTTP_SOURCE_MODEL = Model(
    "Confluent's HTTP source",
    refused={
        "http.api.base.url": "Set url.",
        "http.initial.offset": "Write the first position into url, as a parameter.",
        "http.offset.mode": _PAGES,
        "http.offset.json.pointer": "Set cursor.path or since.path, names joined by dots.",
        "http.chaining.json.pointer": "Set cursor.path, names joined by dots.",
        "http.next.page.json.pointer": "Set pagination=cursor and cursor.path, or pagination=link.",
        "http.response.data.json.pointer": "Set records.path, names joined by dots.",
        "http.request.": _BODY,
        "request.interval.ms": "Set interval.ms.",
        "topic.name.pattern": "Set topic.",
        "entity.names": "Make a connector for each address.",
        "api.": "Make a connector for each address.",
        "apis.num": "Make a connector for each address.",
        "auth.type": _SECRETS,
        "connection.user": _SECRETS,
        "connection.password": _SECRETS,
        "bearer.token": _SECRETS,
        "api.key.": _SECRETS,
        "oauth2.": _SECRETS,
        "http.headers": _HEADERS,
        "http.connect.timeout.ms": "Set timeout.ms.",
        "http.request.timeout.ms": "Set timeout.ms.",
        "max.retries": _AGAIN,
        "retry.backoff.ms": _AGAIN,
        "retry.backoff.policy": _AGAIN,
        "retry.on.status.codes": _AGAIN,
        "http.proxy.": _PROXY,
        "https.": _TLS,
        "behavior.on.error": "If a request keeps failing, the task fails: set restart.policy=on-failure to try again.",
        "reporter.": _REPORTS,
    },
)
HTTP_SINK_MODEL = Model(
    "Confluent's HTTP sink",
    refused={
        "http.api.url": "Set url.",
        "http.api.base.url": "Set url.",
        "request.method": "Set method to POST or PUT.",
        "request.body.format": _JSON,
        "batch.max.size": "Set batch.size.",
        "batch.key.pattern": "Records of a request are those that come one after another, whatever their keys.",
        "batch.prefix": _JSON,
        "batch.suffix": _JSON,
        "batch.separator": _JSON,
        "batch.json.as.array": _JSON,
        "regex.": "Change records by the transformations of the connector.",
        "auth.type": _SECRETS,
        "connection.user": _SECRETS,
        "connection.password": _SECRETS,
        "bearer.token": _SECRETS,
        "oauth2.": _SECRETS,
        "header.separator": "Headers are separated by commas.",
        "http.connect.timeout.ms": "Set timeout.ms.",
        "http.request.timeout.ms": "Set timeout.ms.",
        "max.retries": _PUTS,
        "retry.backoff.ms": _PUTS,
        "retry.backoff.policy": _PUTS,
        "retry.on.status.codes": "Requests are sent again after 408, 425, 429 and answers from 500 on.",
        "http.proxy.": _PROXY,
        "https.": _TLS,
        "behavior.on.null.values": "Drop records without value by the transformation Filter and RecordIsTombstone.",
        "behavior.on.error": "Set errors.tolerance, and a dead letter queue.",
        "report.errors.as": _REPORTS,
        "reporter.": _REPORTS,
    },
)

_CREDENTIALS = Refused(
    "Set connection.user and connection.password; the worker's config providers read them from files.",
    unless=("io.confluent.connect.jdbc.util.DefaultJdbcCredentialsProvider",),
)
_CALENDAR = Refused(
    "Dates follow the Gregorian calendar of today, also before 1582: set PROLEPTIC_GREGORIAN.",
    unless=("proleptic_gregorian",),
)
_RECONNECTS = "a database that cannot be reached is tried again without a limit."
_JDBC_REFUSED = {"jdbc.credentials.provider.": _CREDENTIALS, "date.calendar.system": _CALENDAR}
_JDBC_IDLE = {
    "connection.attempts": _RECONNECTS,
    "connection.backoff.ms": _RECONNECTS,
    "dialect.name": "the dialect is that of connection.url.",
}
_BUFFER = "rows are read when they are asked for, batch.max.rows at a time."

SQL_SOURCE_MODEL = Model(
    "Confluent's JDBC source",
    refused=_JDBC_REFUSED,
    idle={
        **_JDBC_IDLE,
        "max.buffer.size": _BUFFER,
        "poll.linger.ms": _BUFFER,
        "table.monitoring.startup.polling.limit.ms": "tables are listed when the tasks are made.",
        "engine.shutdown.timeout": "a query ends with the task.",
    },
)
SQL_SINK_MODEL = Model(
    "Confluent's JDBC sink",
    refused=_JDBC_REFUSED,
    idle={
        **_JDBC_IDLE,
        "mssql.use.merge.holdlock": "rows of SQL Server are updated or inserted without MERGE.",
    },
)
