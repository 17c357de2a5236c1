"""Storage of a registry's schemas: an SQLite file, or memory."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import SchemaRegistryError
from penstock.serde.registry.model import Reference, StoredSchema, SubjectVersion

__all__ = ["SchemaStore"]

_TABLES = """
CREATE TABLE IF NOT EXISTS schemas (
    id INTEGER PRIMARY KEY AUTOINCREMENT, guid TEXT UNIQUE NOT NULL, text TEXT NOT NULL, kind TEXT NOT NULL,
    refs TEXT NOT NULL, metadata TEXT, rule_set TEXT);
CREATE TABLE IF NOT EXISTS versions (
    subject TEXT NOT NULL, number INTEGER NOT NULL, schema_id INTEGER NOT NULL REFERENCES schemas(id),
    deleted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (subject, number)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS versions_by_schema ON versions (schema_id);
CREATE TABLE IF NOT EXISTS settings (
    subject TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (subject, name)) WITHOUT ROWID;
"""
_COLUMNS = "v.subject, v.number, v.schema_id, v.deleted, s.text, s.kind, s.refs, s.metadata, s.rule_set"
_FROM = f"SELECT {_COLUMNS} FROM versions v JOIN schemas s ON s.id = v.schema_id"  # noqa: S608 - constants


class SchemaStore:
    """The stored schemas by id, versions by subject, and settings by subject (global ones under the empty subject).

    Args:
        path: An SQLite file, created if missing; None keeps everything in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.RLock()
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                ":memory:" if path is None else path, check_same_thread=False, isolation_level=None
            )
            self._database.executescript(_TABLES)
            if path is not None:
                self._database.execute("PRAGMA journal_mode = WAL")
        except (sqlite3.Error, OSError) as error:
            raise SchemaRegistryError(
                f"{path} cannot hold a registry: {error}", hint="Name a file in a directory that can be written."
            ) from error

    def close(self) -> None:
        with self._lock:
            self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one exclusive transaction; transactions may be nested."""
        with self._lock:
            if self._database.in_transaction:
                yield
                return
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def schema(self, schema_id: int) -> StoredSchema | None:
        return self._schema("id = ?", schema_id)

    def schema_by_guid(self, guid: str) -> tuple[int, StoredSchema] | None:
        with self._lock:
            row = self._database.execute("SELECT id FROM schemas WHERE guid = ?", (guid,)).fetchone()
            schema = None if row is None else self.schema(row[0])
            return None if schema is None else (row[0], schema)

    def _schema(self, condition: str, value: object) -> StoredSchema | None:
        query = f"SELECT text, kind, refs, metadata, rule_set FROM schemas WHERE {condition}"  # noqa: S608 - constants
        with self._lock:
            row = self._database.execute(query, (value,)).fetchone()
        return None if row is None else _schema(*row)

    def add_schema(self, schema: StoredSchema, schema_id: int | None = None) -> int:
        """Store a schema unless it is known; return its id."""
        id_and_schema = self.schema_by_guid(schema.guid)
        if id_and_schema is not None:
            return id_and_schema[0]
        references = json.dumps([reference.document() for reference in schema.references])
        row = (schema_id, schema.guid, schema.text, schema.kind, references, schema.metadata, schema.rule_set)
        with self._lock:
            added = self._database.execute(
                "INSERT INTO schemas (id, guid, text, kind, refs, metadata, rule_set) VALUES (?, ?, ?, ?, ?, ?, ?)", row
            )
        assert added.lastrowid is not None, "an insert has a row"  # noqa: S101
        return added.lastrowid

    def subjects(self) -> list[tuple[str, bool]]:
        """List all subjects, each with whether all of its versions are deleted."""
        with self._lock:
            rows = self._database.execute("SELECT subject, MIN(deleted) FROM versions GROUP BY subject ORDER BY 1")
            return [(subject, bool(deleted)) for subject, deleted in rows]

    def versions(self, subject: str) -> list[SubjectVersion]:
        """List all versions of a subject, deleted ones included, oldest first."""
        return self._versions(f"{_FROM} WHERE v.subject = ? ORDER BY v.number", (subject,))

    def uses(self, schema_id: int) -> list[SubjectVersion]:
        """List all versions that use this schema."""
        return self._versions(f"{_FROM} WHERE v.schema_id = ? ORDER BY v.subject, v.number", (schema_id,))

    def all_versions(self) -> list[SubjectVersion]:
        return self._versions(f"{_FROM} ORDER BY v.subject, v.number", ())

    def _versions(self, query: str, values: tuple[object, ...]) -> list[SubjectVersion]:
        with self._lock:
            rows = self._database.execute(query, values).fetchall()
        return [
            SubjectVersion(subject, number, schema_id, _schema(*schema), bool(deleted))
            for subject, number, schema_id, deleted, *schema in rows
        ]

    def add_version(self, subject: str, number: int, schema_id: int) -> None:
        with self._lock:
            self._database.execute(
                "INSERT OR REPLACE INTO versions (subject, number, schema_id) VALUES (?, ?, ?)",
                (subject, number, schema_id),
            )

    def delete(self, version: SubjectVersion, *, permanently: bool) -> None:
        verb = "DELETE FROM versions" if permanently else "UPDATE versions SET deleted = 1"
        with self._lock:
            self._database.execute(f"{verb} WHERE subject = ? AND number = ?", (version.subject, version.number))

    def setting(self, subject: str, name: str) -> str | None:
        with self._lock:
            row = self._database.execute(
                "SELECT value FROM settings WHERE subject = ? AND name = ?", (subject, name)
            ).fetchone()
        return None if row is None else row[0]

    def put_setting(self, subject: str, name: str, value: str | None) -> None:
        with self._lock:
            if value is None:
                self._database.execute("DELETE FROM settings WHERE subject = ? AND name = ?", (subject, name))
            else:
                self._database.execute("INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", (subject, name, value))


def _schema(text: str, kind: str, references: str, metadata: str | None, rule_set: str | None) -> StoredSchema:
    return StoredSchema(text, kind, tuple(Reference(**r) for r in json.loads(references)), metadata, rule_set)
