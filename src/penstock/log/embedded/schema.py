"""The tables of an embedded log's file, and the check of its format."""

from __future__ import annotations

import sqlite3

from penstock.errors import LogError

__all__ = ["APPLICATION_ID", "FORMAT", "ensure_schema"]

APPLICATION_ID = 0x50454E53  # "PENS", in the file's header
FORMAT = 1

# The payload comes last: SQLite then reads the columns before it without touching the blob's overflow pages.
_TABLES = """
CREATE TABLE topics (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, config TEXT NOT NULL, created_ms INTEGER NOT NULL);
CREATE TABLE partitions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
  start_offset INTEGER NOT NULL DEFAULT 0, next_offset INTEGER NOT NULL DEFAULT 0,
  cleaned_to INTEGER NOT NULL DEFAULT 0, UNIQUE (topic_id, partition));
CREATE TABLE batches (
  id INTEGER PRIMARY KEY, partition_id INTEGER NOT NULL, base_offset INTEGER NOT NULL, last_offset INTEGER NOT NULL,
  count INTEGER NOT NULL, min_ts INTEGER NOT NULL, max_ts INTEGER NOT NULL, appended_ms INTEGER NOT NULL,
  flags INTEGER NOT NULL, bytes INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE UNIQUE INDEX batches_by_offset ON batches (
  partition_id, last_offset, base_offset, count, min_ts, max_ts, appended_ms, bytes);
CREATE TABLE group_offsets (
  name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
  committed_ms INTEGER NOT NULL, PRIMARY KEY (name, topic, partition)) WITHOUT ROWID;
CREATE TABLE ledger (
  application TEXT NOT NULL, task TEXT NOT NULL, batch INTEGER NOT NULL, written_ms INTEGER NOT NULL,
  PRIMARY KEY (application, task)) WITHOUT ROWID;
CREATE TABLE producers (transactional_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE leases (
  application TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
  process_start TEXT NOT NULL,
  epoch INTEGER NOT NULL, since_ms INTEGER NOT NULL, heartbeat_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL,
  released INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('version', 0), ('cleaned_ms', 0);
"""

# Later tables; they are added to files of earlier versions too, and older versions of Penstock ignore them.
_GROUPS = """
CREATE TABLE group_notes (
  name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, metadata TEXT NOT NULL,
  PRIMARY KEY (name, topic, partition)) WITHOUT ROWID;
CREATE TABLE groups (
  name TEXT PRIMARY KEY, generation INTEGER NOT NULL, assignor TEXT NOT NULL, changed_ms INTEGER NOT NULL
  ) WITHOUT ROWID;
CREATE TABLE group_members (
  name TEXT NOT NULL, member TEXT NOT NULL, instance TEXT NOT NULL, client TEXT NOT NULL, host TEXT NOT NULL,
  pid INTEGER NOT NULL, process_start TEXT NOT NULL, topics TEXT NOT NULL, assignors TEXT NOT NULL,
  session_ms INTEGER NOT NULL, heartbeat_ms INTEGER NOT NULL, PRIMARY KEY (name, member)) WITHOUT ROWID;
CREATE TABLE group_targets (
  name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, member TEXT NOT NULL,
  PRIMARY KEY (name, topic, partition)) WITHOUT ROWID;
CREATE TABLE group_owners (
  name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, member TEXT NOT NULL,
  PRIMARY KEY (name, topic, partition)) WITHOUT ROWID;
"""

# Ids of the log and of its topics. Triggers make them, so topics that an older version creates have ids too.
_IDENTITIES = """
CREATE TABLE topic_ids (topic_id INTEGER PRIMARY KEY, id TEXT NOT NULL);
CREATE TRIGGER topic_created AFTER INSERT ON topics BEGIN
  INSERT INTO topic_ids VALUES (new.id, lower(hex(randomblob(16)))); END;
CREATE TRIGGER topic_deleted AFTER DELETE ON topics BEGIN DELETE FROM topic_ids WHERE topic_id = old.id; END;
INSERT INTO topic_ids SELECT id, lower(hex(randomblob(16))) FROM topics;
CREATE TABLE identity (id TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(16))));
"""
# The checksums of the inputs of the ledger's batches.
_LEDGER_INPUTS = """
CREATE TABLE ledger_inputs (
  application TEXT NOT NULL, task TEXT NOT NULL, batch INTEGER NOT NULL, inputs TEXT NOT NULL,
  PRIMARY KEY (application, task)) WITHOUT ROWID;
"""
# The newest planned batch of each application.
_PLANNED = """
CREATE TABLE planned (application TEXT PRIMARY KEY, batch TEXT NOT NULL) WITHOUT ROWID;
"""
# Records that change by compare-and-set. Earlier versions of Penstock see the leases among them as a table of theirs.
_LEASE_COLUMNS = ("application", "owner", "host", "pid", "process_start", "epoch", "since_ms", "heartbeat_ms", "ttl_ms")
_VALUE = ", ".join(f"'{name}', {{0}}{name}" for name in _LEASE_COLUMNS)
_LEASE_JSON = f"json_object({_VALUE}, 'released', json(CASE {{0}}released WHEN 0 THEN 'false' ELSE 'true' END))"
_OLD_COLUMNS = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in (*_LEASE_COLUMNS, "released"))
_FENCED_RECORDS = f"""
CREATE TABLE fenced_records (
  name TEXT PRIMARY KEY, version INTEGER NOT NULL, attempt TEXT NOT NULL, value TEXT) WITHOUT ROWID;
INSERT INTO fenced_records SELECT application || '-driver', 0, '', {_LEASE_JSON.format("")} FROM leases;
DROP TABLE leases;
CREATE VIEW leases AS SELECT {_OLD_COLUMNS} FROM fenced_records
  WHERE name = json_extract(value, '$.application') || '-driver';
CREATE TRIGGER lease_taken INSTEAD OF INSERT ON leases BEGIN
  INSERT INTO fenced_records VALUES (new.application || '-driver', coalesce((SELECT version + 1 FROM fenced_records
  WHERE name = new.application || '-driver'), 0), '', {_LEASE_JSON.format("new.")}); END;
CREATE TRIGGER lease_renewed INSTEAD OF UPDATE ON leases BEGIN
  UPDATE fenced_records SET version = version + 1, attempt = '', value = {_LEASE_JSON.format("new.")}
  WHERE name = old.application || '-driver'; END;
"""  # noqa: S608 - of constants
# After the payload, as both are read together; null in rows of earlier versions.
_CHECKSUMS = "ALTER TABLE batches ADD COLUMN checksum INTEGER"

# Streams groups: each group and member is a document; the columns are what commits and heartbeats look at.
_STREAMS_GROUPS = """
CREATE TABLE streams_groups (name TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE streams_members (
  name TEXT NOT NULL, member TEXT NOT NULL, epoch INTEGER NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
  process_start TEXT NOT NULL, heard_ms INTEGER NOT NULL, document TEXT NOT NULL, PRIMARY KEY (name, member)
  ) WITHOUT ROWID;
"""

# The last table, or column, of each addition -> the addition.
_LATER = {
    "group_owners": _GROUPS,
    "identity": _IDENTITIES,
    "ledger_inputs": _LEDGER_INPUTS,
    "planned": _PLANNED,
    "fenced_records": _FENCED_RECORDS,
    "batches.checksum": _CHECKSUMS,
    "streams_members": _STREAMS_GROUPS,
}


def ensure_schema(connection: sqlite3.Connection, where: str) -> None:
    """Create the tables in an empty file; refuse other files.

    Raises:
        LogError: The file belongs to another program, or has another format of Penstock.
    """
    if _check(connection, where) and all(_has(connection, name) for name in _LATER):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _check(connection, where):  # another process may have been first
            _create(connection, _TABLES)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        for name, addition in _LATER.items():
            if not _has(connection, name):
                _create(connection, addition)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _create(connection: sqlite3.Connection, tables: str) -> None:
    for statement in tables.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def _has(connection: sqlite3.Connection, name: str) -> bool:
    table, _, column = name.partition(".")
    if column:
        cursor = connection.execute("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", (table, column))
    else:
        cursor = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
    return cursor.fetchone() is not None


def _check(connection: sqlite3.Connection, where: str) -> bool:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == APPLICATION_ID:
        if version != FORMAT:
            raise LogError(
                f"{where} is a Penstock log of format {version}; this version of Penstock reads format {FORMAT}",
                hint="open it with the version of Penstock that wrote it, or name another file",
                format=version,
            )
        return True
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application or version or tables:
        raise LogError(
            f"{where} is an SQLite database, but not a Penstock log", hint="name another file; this one was not touched"
        )
    return False
