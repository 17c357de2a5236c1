"""Debezium's envelopes: the schemas around a change, and where a change comes from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.java_text.hashing import hash_order
from penstock.base.version import __version__
from penstock.connect.data import (
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Header,
    Headers,
    Schema,
    SourceRecord,
    Struct,
    array,
    map_of,
    struct,
    with_default,
)

__all__ = [
    "BLOCK",
    "HEARTBEAT_KEY",
    "HEARTBEAT_VALUE",
    "MESSAGE_KEY",
    "NOTIFICATION_KEY",
    "NOTIFICATION_VALUE",
    "SOURCE",
    "TIME_FIELDS",
    "TRANSACTION_KEY",
    "TRANSACTION_VALUE",
    "Origin",
    "TransactionMetadata",
    "context_headers",
    "message_value",
    "now_fields",
    "snapshot_place",
    "source_struct",
]

SNAPSHOTS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_CONNECTOR = "io.debezium.connector.postgresql"
_COMMON = "io.debezium.connector.common"
SOURCE = struct(
    [
        ("version", STRING),
        ("connector", STRING),
        ("name", STRING),
        ("ts_ms", INT64),
        (
            "snapshot",
            replace(
                with_default(OPTIONAL_STRING, "false"),
                name="io.debezium.data.Enum",
                version=1,
                parameters={"allowed": SNAPSHOTS},
            ),
        ),
        ("db", STRING),
        ("sequence", OPTIONAL_STRING),
        ("ts_us", OPTIONAL_INT64),
        ("ts_ns", OPTIONAL_INT64),
        ("schema", STRING),
        ("table", STRING),
        ("txId", OPTIONAL_INT64),
        ("lsn", OPTIONAL_INT64),
        ("xmin", OPTIONAL_INT64),
        ("origin", OPTIONAL_STRING),
        ("origin_lsn", OPTIONAL_INT64),
    ],
    name=f"{_CONNECTOR}.Source",
    version=1,
)
BLOCK = struct(
    [("id", STRING), ("total_order", INT64), ("data_collection_order", INT64)],
    name="event.block",
    version=1,
    optional=True,
)
TIME_FIELDS: tuple[tuple[str, Schema], ...] = (
    ("ts_ms", OPTIONAL_INT64),
    ("ts_us", OPTIONAL_INT64),
    ("ts_ns", OPTIONAL_INT64),
)
TRANSACTION_KEY = struct([("id", STRING)], name=f"{_COMMON}.TransactionMetadataKey", version=1)
_COLLECTION = struct(
    [("data_collection", STRING), ("event_count", INT64)], name="event.collection", version=1, optional=True
)
TRANSACTION_VALUE = struct(
    [
        ("status", STRING),
        ("id", STRING),
        ("event_count", OPTIONAL_INT64),
        ("data_collections", array(_COLLECTION, optional=True)),
        ("ts_ms", INT64),
    ],
    name=f"{_COMMON}.TransactionMetadataValue",
    version=1,
)
HEARTBEAT_KEY = struct([("serverName", STRING)], name=f"{_COMMON}.ServerNameKey", version=1)
HEARTBEAT_VALUE = struct([("ts_ms", INT64)], name=f"{_COMMON}.Heartbeat", version=1)
NOTIFICATION_KEY = struct([("id", STRING)], name=f"{_COMMON}.NotificationKey", version=1)
NOTIFICATION_VALUE = struct(
    [
        ("id", STRING),
        ("type", STRING),
        ("aggregate_type", STRING),
        ("additional_data", map_of(STRING, STRING, optional=True)),
        ("timestamp", INT64),
    ],
    name=f"{_COMMON}.Notification",
    version=1,
)
MESSAGE_KEY = struct([("prefix", OPTIONAL_STRING)], name=f"{_CONNECTOR}.MessageKey", version=1)


def message_value(content: Schema) -> Schema:
    """Return the schema of a message of an application, whose content is bytes or text."""
    message = struct([("prefix", OPTIONAL_STRING), ("content", content)], name=f"{_CONNECTOR}.Message", version=1)
    return struct(
        [
            ("op", STRING),
            ("ts_ms", OPTIONAL_INT64),
            ("source", SOURCE),
            ("transaction", BLOCK),
            ("message", message),
        ],
        name=f"{_CONNECTOR}.MessageValue",
        version=1,
    )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a change comes from.

    Attributes:
        lsn: Its position in the server's log.
        xid: The number of its transaction.
        time_us: The time of the commit, microseconds since 1970.
        snapshot: ``false`` for changes; for rows of a snapshot what place they have in it.
        last_commit: The position of the last commit before it.
        xmin: The oldest transaction that the slot still needs.
        replicated: The replication origin of its transaction, and the position there.
    """

    lsn: int | None
    xid: int | None
    time_us: int
    snapshot: str = "false"
    last_commit: int | None = None
    xmin: int | None = None
    replicated: tuple[str | None, int | None] = (None, None)


def source_struct(prefix: str, database: str, origin: Origin, table: tuple[str, str] = ("", "")) -> Struct:
    """Return the block ``source`` of a change in a table, given by schema and name."""
    last = "null" if origin.last_commit is None else f'"{origin.last_commit}"'
    fields: dict[str, Any] = {
        "version": __version__,
        "connector": "postgresql",
        "name": prefix,
        "ts_ms": origin.time_us // 1000,
        "snapshot": None if origin.snapshot == "false" else origin.snapshot,  # the default of its schema
        "db": database,
        "sequence": None if origin.lsn is None else f'[{last},"{origin.lsn}"]',
        "ts_us": origin.time_us,
        "ts_ns": origin.time_us * 1000,
        "schema": table[0],
        "table": table[1],
        "txId": origin.xid,
        "lsn": None if origin.snapshot == "incremental" else origin.lsn,  # as in Debezium, which has it in ``sequence``
        "xmin": origin.xmin,
        "origin": origin.replicated[0],
        "origin_lsn": origin.replicated[1],
    }
    return Struct(SOURCE, fields)


def snapshot_place(*, is_first_table: bool, is_first: bool, is_end: bool) -> str:
    """Return what a row of a snapshot is in Debezium's words; the very last one is ``last``."""
    if is_first_table and is_first:
        return "first"
    if is_end:
        return "last_in_data_collection"
    return "first_in_data_collection" if is_first else "true"


def now_fields() -> Mapping[str, int]:
    """Return the times at which an envelope is made."""
    now_ns = time.time_ns()
    return {"ts_ms": now_ns // 1_000_000, "ts_us": now_ns // 1000, "ts_ns": now_ns}


def context_headers(prefix: str, run_id: str) -> Headers:
    """Return the headers that say which connector and task has made a record (``extended.headers.enabled``)."""
    values = {"connectorLogicalName": prefix, "taskId": "0", "connectorName": "postgresql", "runId": run_id}
    return Headers(Header(f"__debezium.context.{name}", value, STRING) for name, value in values.items())


_ORDER = "transaction_data_collection_order_"


class TransactionMetadata:
    """Counts the changes of a transaction (``provide.transaction.metadata``).

    Args:
        topic: The topic of the events.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._identity: str | None = None
        self._counts: dict[str, int] = {}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on in a transaction that was written in part."""
        self._identity = stored.get("transaction_id")
        self._counts = {name[len(_ORDER) :]: int(n) for name, n in stored.items() if name.startswith(_ORDER)}

    def stored(self) -> dict[str, Any]:
        """Return what the offsets of its records have."""
        if self._identity is None:
            return {}
        counts = {f"{_ORDER}{name}": count for name, count in self._counts.items()}
        return {"transaction_id": self._identity, **counts}

    def begin(self, xid: int, lsn: int, time_us: int) -> SourceRecord:
        """Return the event that a transaction begins."""
        self._identity, self._counts = f"{xid}:{lsn}", {}
        return self._record("BEGIN", None, None, time_us)

    def count(self, table: str) -> Struct:
        """Return the place of one more change of a table, given as ``schema.table``."""
        self._counts[table] = self._counts.get(table, 0) + 1
        return Struct.of_checked(BLOCK, [self._identity, sum(self._counts.values()), self._counts[table]])

    def end(self, time_us: int) -> SourceRecord:
        """Return the event that the transaction ends."""
        collections = TRANSACTION_VALUE.fields[3].schema.values
        assert collections is not None  # noqa: S101 - the schema is a constant
        parts = [
            Struct(collections, {"data_collection": name, "event_count": self._counts[name]})
            for name in hash_order(self._counts)
        ]
        return self._record("END", sum(self._counts.values()), parts, time_us)

    def close(self) -> None:
        """Forget the transaction that has ended."""
        self._identity, self._counts = None, {}

    def _record(self, status: str, count: int | None, parts: list[Struct] | None, time_us: int) -> SourceRecord:
        value = Struct.of_checked(TRANSACTION_VALUE, [status, self._identity, count, parts, time_us // 1000])
        return SourceRecord(
            topic=self._topic,
            key=Struct.of_checked(TRANSACTION_KEY, [self._identity]),
            key_schema=TRANSACTION_KEY,
            value=value,
            value_schema=TRANSACTION_VALUE,
        )
