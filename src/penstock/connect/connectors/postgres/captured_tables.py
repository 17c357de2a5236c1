"""What a connector's settings choose: tables, keys, operations, messages, and the order of the snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.connect.connectors.postgres.column_masks import Patterns, column_rules
from penstock.connect.connectors.postgres.columns import ColumnForm, Handling, column_form
from penstock.connect.connectors.postgres.tables import CaptureSettings, TableFacts, topic_name
from penstock.connect.connectors.postgres.types import PgType
from penstock.errors import ConnectError

__all__ = ["REPLICA_IDENTITY", "Capture"]

Name = tuple[str, str]
LISTS = (
    "schema.include.list", "schema.exclude.list", "table.include.list", "table.exclude.list",
    "snapshot.include.collection.list", "message.prefix.include.list", "message.prefix.exclude.list",
)  # fmt: skip
REPLICA_IDENTITY = re.compile(r"\s*([^\s:]+):(DEFAULT|INDEX (\w+)|FULL|NOTHING)\s*", re.IGNORECASE)
OPERATIONS = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}
DEFAULT_NAMING = "io.debezium.schema.DefaultTopicNamingStrategy"


@dataclass(frozen=True, slots=True)
class Capture:
    """What is captured.

    Attributes:
        tables: What is the same for all tables.
        conninfo: The connection, as psycopg's keywords.
        statements: Run on each new connection.
        lists: The lists of patterns by their settings.
        keys: The columns of keys by patterns of tables.
        overrides: The statements in place of tables in a snapshot.
        identities: The replica identities of tables, by patterns: a kind, and the name of its index.
        skipped: The operations that do not come out.
        published: What a publication that is made has; None: all.
        needed: What a publication that is there needs.
        confirms: The server may forget what is written.
        signal_tables: The tables of signals.
        message_content: The form of the content of messages of applications.
        chunk_size: The number of rows that an incremental snapshot reads at once.
    """

    tables: CaptureSettings
    conninfo: Mapping[str, Any] = field(repr=False)  # has the password
    statements: tuple[str, ...]
    lists: Mapping[str, Patterns]
    keys: tuple[tuple[Patterns, tuple[str, ...]], ...]
    overrides: Mapping[str, str]
    identities: tuple[tuple[Patterns, str, str | None], ...]
    skipped: frozenset[str]
    published: tuple[str, ...] | None
    needed: tuple[str, ...]
    confirms: bool
    signal_tables: frozenset[str]
    message_content: ColumnForm
    chunk_size: int

    @classmethod
    def of(cls, parsed: Mapping[str, Any], settings: Mapping[str, str]) -> Capture:
        """Return what the settings of a connector say.

        Raises:
            SettingError: One is wrong.
        """
        handling = Handling(
            decimals=parsed["decimal.handling.mode"],
            times=parsed["time.precision.mode"],
            intervals=parsed["interval.handling.mode"],
            hstore=parsed["hstore.handling.mode"],
            binary=parsed["binary.handling.mode"],
            unknown=parsed["include.unknown.datatypes"],
            unavailable=parsed["unavailable.value.placeholder"],
        )
        tables = CaptureSettings(
            parsed["topic.prefix"],
            parsed["database.dbname"],
            handling,
            tombstones=parsed["tombstones.on.delete"],
            columns=column_rules(settings, parsed["column.include.list"], parsed["column.exclude.list"]),
            delimiter=parsed["topic.delimiter"],
            has_schema=parsed["topic.naming.strategy"] != DEFAULT_NAMING,
            schema_names=parsed["schema.name.adjustment.mode"],
            field_names=parsed["field.name.adjustment.mode"],
            comments=parsed["include.schema.comments"],
            propagated=Patterns.of(parsed["column.propagate.source.type"], "column.propagate.source.type"),
            propagated_types=Patterns.of(parsed["datatype.propagate.source.type"], "datatype.propagate.source.type"),
        )
        skipped = frozenset(each.strip() for each in parsed["skipped.operations"])
        needed = _needed(skipped, has_signals=bool(parsed["signal.data.collection"]))
        content = column_form(PgType(17, "bytea"), -1, handling, nullable=True)
        assert content is not None  # noqa: S101 - bytea has a form
        return cls(
            tables,
            _conninfo(parsed),
            tuple(_statements(parsed["database.initial.statements"])),
            {name: Patterns.of(parsed[name], name) for name in LISTS},
            tuple(_key_columns(parsed["message.key.columns"])),
            {
                name.strip().lower(): settings.get(f"snapshot.select.statement.overrides.{name.strip()}", "")
                for name in parsed["snapshot.select.statement.overrides"]
            },
            tuple(_identities(parsed["replica.identity.autoset.values"])),
            skipped,
            needed if "skipped.operations" in settings and skipped != {"none"} else None,
            needed,
            parsed["flush.lsn.source"] and parsed["lsn.flush.mode"] != "manual",
            frozenset(each.strip() for each in parsed["signal.data.collection"]),
            content,
            parsed["incremental.snapshot.chunk.size"],
        )

    def takes(self, schema: str, table: str) -> bool:
        """Return whether a table is captured: those of signals always are."""
        name, lists = f"{schema}.{table}", self.lists
        if self.is_signal_table((schema, table)):
            return True
        if lists["table.include.list"] and not self._matches("table.include.list", name):
            return False
        if lists["schema.include.list"] and not lists["schema.include.list"].match(schema):
            return False
        return not (self._matches("table.exclude.list", name) or lists["schema.exclude.list"].match(schema))

    def is_signal_table(self, name: Name) -> bool:
        """Return whether a table is one of signals."""
        shown = ".".join(name)
        return shown in self.signal_tables or f"{self.tables.database}.{shown}" in self.signal_tables

    def first_signal_table(self) -> Name | None:
        """Return a table of signals, by its name; None: there is none."""
        for each in sorted(self.signal_tables):
            parts = each.split(".")
            if len(parts) > 1:
                return parts[-2], parts[-1]
        return None

    def _matches(self, setting: str, table: str) -> bool:
        return self.lists[setting].match(table)

    def takes_message(self, prefix: str) -> bool:
        """Return whether the messages of a prefix come out."""
        included, excluded = self.lists["message.prefix.include.list"], self.lists["message.prefix.exclude.list"]
        return included.match(prefix) if included else not excluded.match(prefix)

    def keyed(self, schema: str, table: str, facts: TableFacts) -> TableFacts:
        """Return the facts with the key that the settings give to a table."""
        for pattern, columns in self.keys:
            key = tuple(each for each in columns if each in facts.columns)
            if pattern.match(f"{schema}.{table}") and key:
                return replace(facts, key=key)
        return facts

    def identity(self, name: Name) -> tuple[str, str | None] | None:
        """Return the replica identity that the settings give to a table, and its index; None: it stays as it is.

        Raises:
            ConnectError: They give several.
        """
        chosen = [(kind, index) for pattern, kind, index in self.identities if pattern.match(".".join(name))]
        if len(chosen) > 1:
            raise ConnectError(
                f"several expressions of replica.identity.autoset.values match the table {'.'.join(name)}",
                hint="Name each table once.",
            )
        return chosen[0] if chosen else None

    def override(self, name: Name) -> str:
        """Return the statement in place of a table; empty: there is none."""
        return self.overrides.get(".".join(name).lower(), "")

    def snapshot_order(self, tables: Iterable[Name]) -> list[Name]:
        """Return the tables of the snapshot: in the order of ``table.include.list``, or of their names."""
        first = self.lists["snapshot.include.collection.list"]
        chosen = sorted(name for name in tables if self.takes(*name) and not self.is_signal_table(name))
        if first:
            chosen = [name for name in chosen if first.match(".".join(name))]
        included = self.lists["table.include.list"]
        if not included:
            return chosen
        ordered = [name for pattern in included.expressions for name in chosen if pattern.fullmatch(".".join(name))]
        return list(dict.fromkeys([*ordered, *chosen]))

    def service_topic(self, *parts: str) -> str:
        """Return the topic of heartbeats or transactions."""
        return topic_name(self.tables.delimiter.join(parts))


def _conninfo(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection, as psycopg's keywords."""
    keywords = {
        "host": parsed["database.hostname"],
        "port": parsed["database.port"],
        "user": parsed["database.user"],
        "password": parsed["database.password"].secret,
        "dbname": parsed["database.dbname"],
        "connect_timeout": 10,
        "application_name": "penstock-connect",
        "options": f"-c statement_timeout={parsed['database.query.timeout.ms']}",
        "keepalives": int(parsed["database.tcpKeepAlive"]),
        "sslmode": parsed["database.sslmode"],
        "sslcert": parsed["database.sslcert"],
        "sslkey": parsed["database.sslkey"],
        "sslpassword": parsed["database.sslpassword"].secret,
        "sslrootcert": parsed["database.sslrootcert"],
    }
    return {name: value for name, value in keywords.items() if value != ""}


def _statements(text: str) -> list[str]:
    statements = [each.replace("\0", ";").strip() for each in text.replace(";;", "\0").split(";")]
    return [each for each in statements if each]


def _identities(text: str) -> Iterable[tuple[Patterns, str, str | None]]:
    """Return replica identities by tables, of ``schema.table:FULL,schema.table:INDEX name``."""
    for match in map(REPLICA_IDENTITY.fullmatch, text.split(",") if text else ()):
        if match is not None:
            table, identity, index = match.groups()
            yield Patterns.of([table], "replica.identity.autoset.values"), identity.split()[0].upper(), index


def _needed(skipped: frozenset[str], *, has_signals: bool) -> tuple[str, ...]:
    """Return what a publication needs, so that the server does not send what is skipped; signals are inserts."""
    return tuple(
        name for letter, name in OPERATIONS.items() if letter not in skipped or (letter == "c" and has_signals)
    )


def _key_columns(text: str) -> list[tuple[Patterns, tuple[str, ...]]]:
    """Return the columns of keys by tables, of ``schema.table:column,column;...``."""
    key_columns = []
    for part in text.split(";"):
        table, _, columns = part.rpartition(":")
        if table.strip():
            names = tuple(each.strip() for each in columns.split(",") if each.strip())
            key_columns.append((Patterns.of([table], "message.key.columns"), names))
    return key_columns
