"""The tables of an embedded log's file, and the guard on their version."""

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

# Tables that came later; they are made in files of earlier versions too, which older versions of Penstock do not mind.
_LATER = """
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


def ensure_schema(connection: sqlite3.Connection, where: str) -> None:
    """Creates the tables in an empty file, and refuses a file that is something else.

    Raises:
        LogError: If the file is of another program, or of another format of Penstock.
    """
    if _check(connection, where) and _has_later(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _check(connection, where):  # another process may have been first
            _create(connection, _TABLES)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        if not _has_later(connection):
            _create(connection, _LATER)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _create(connection: sqlite3.Connection, tables: str) -> None:
    for statement in tables.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def _has_later(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'group_owners'").fetchone() is not None


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
