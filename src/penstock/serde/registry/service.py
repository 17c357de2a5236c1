"""The registry: registering, looking up and deleting schemas, with compatibility checks, in SQLite or in memory."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import SchemaRegistryError
from penstock.serde.registry.compatibility import check_new, differences
from penstock.serde.registry.model import Reference, StoredSchema, SubjectVersion, refused

__all__ = ["LEVELS", "Registry", "forget", "named"]

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


LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")


class Registry:
    """A schema registry: subjects, each with versions of schemas, by the rules of Confluent's registry.

    >>> registry = Registry()
    >>> version = registry.register("orders-value", StoredSchema('"string"'))
    >>> version.number, version.schema_id, registry.subjects()
    (1, 1, ['orders-value'])

    Args:
        path: An SQLite file; None keeps everything in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._store = SchemaStore(path)

    def close(self) -> None:
        self._store.close()

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        return [name for name, gone in self._store.subjects() if name.startswith(prefix) and (deleted or not gone)]

    def schema(self, schema_id: int) -> StoredSchema:
        schema = self._store.schema(schema_id)
        if schema is None:
            raise refused(404, 40403, f"Schema {schema_id} not found")
        return schema

    def schema_by_guid(self, guid: str) -> tuple[int, StoredSchema]:
        id_and_schema = self._store.schema_by_guid(guid.lower())
        if id_and_schema is None:
            raise refused(404, 40403, f"Schema {guid} not found")
        return id_and_schema

    def uses(self, schema_id: int, *, deleted: bool = False) -> list[SubjectVersion]:
        """List the versions that use a schema."""
        self.schema(schema_id)
        return [version for version in self._store.uses(schema_id) if deleted or not version.deleted]

    def all_versions(self, *, deleted: bool = False) -> list[SubjectVersion]:
        return [version for version in self._store.all_versions() if deleted or not version.deleted]

    def versions(self, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
        """List the versions of a subject, oldest first.

        Raises:
            SchemaRegistryError: 40401, the subject has no version.
        """
        versions = [version for version in self._store.versions(subject) if deleted or not version.deleted]
        if not versions:
            raise refused(404, 40401, f"Subject '{subject}' not found.")
        return versions

    def version(self, subject: str, number: str | int, *, deleted: bool = False) -> SubjectVersion:
        """Return one version of a subject; "latest" or -1 is the newest.

        Raises:
            SchemaRegistryError: 40401, 40402 or 42202.
        """
        version_number = _version_number(number)
        versions = self.versions(subject, deleted=deleted)
        if version_number is None:
            return versions[-1]
        for version in versions:
            if version.number == version_number:
                return version
        raise refused(404, 40402, f"SubjectVersion {version_number} not found.")

    def register(self, subject: str, schema: StoredSchema, schema_id: int | None = None) -> SubjectVersion:
        """Make a schema the subject's newest version; return the existing version if the subject has it already.

        Raises:
            SchemaRegistryError: 42201, the text is not a schema; 409, it is not compatible; 42205, the mode forbids it.
        """
        mode = self.mode(subject)
        check_new(schema, self._resolve)
        with self._store.transaction():
            everything = self._store.versions(subject)
            live = [version for version in everything if not version.deleted]
            for version in live:
                if version.schema.guid == schema.guid:
                    return version
            if mode.startswith("READONLY"):
                raise refused(422, 42205, f"Subject {subject} is in read-only mode")
            problems = self._problems(subject, schema, live)
            if problems:
                raise refused(
                    409,
                    409,
                    f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
                    f"details: {problems}",
                )
            number = everything[-1].number + 1 if everything else 1
            imported_id = schema_id if mode == "IMPORT" else None
            taken = None if imported_id is None else self._store.schema(imported_id)
            if taken is not None and taken.guid != schema.guid:
                raise refused(422, 42205, f"Overwrite new schema with id {imported_id} is not permitted.")
            stored_id = self._store.add_schema(schema, imported_id)
            self._store.add_version(subject, number, stored_id)
        return SubjectVersion(subject, number, stored_id, schema, deleted=False)

    def lookup(self, subject: str, schema: StoredSchema, *, deleted: bool = False) -> SubjectVersion:
        """Find the version of a subject with this schema.

        Raises:
            SchemaRegistryError: 40401 or 40403.
        """
        for version in self.versions(subject, deleted=deleted):
            if version.schema.guid == schema.guid:
                return version
        raise refused(404, 40403, "Schema not found")

    def delete_subject(self, subject: str, *, permanently: bool = False) -> list[int]:
        """Delete all versions of a subject; return their numbers. ``permanently``: only if all were deleted before."""
        with self._store.transaction():
            versions = self._store.versions(subject)
            if not versions:
                raise refused(404, 40401, f"Subject '{subject}' not found.")
            live = [version for version in versions if not version.deleted]
            if permanently and live:
                raise refused(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
            if not permanently and not live:
                raise refused(
                    404, 40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
                )
            doomed = versions if permanently else live
            self._delete(doomed, permanently=permanently)
        return [version.number for version in doomed]

    def delete_version(self, subject: str, number: str | int, *, permanently: bool = False) -> int:
        """Delete one version; return its number. ``permanently``: only if it was deleted before."""
        with self._store.transaction():
            version = self.version(subject, number, deleted=True)
            if permanently and not version.deleted:
                raise refused(
                    404,
                    40407,
                    f"Subject '{subject}' SubjectVersion {version.number} was not deleted first "
                    "before being permanently deleted",
                )
            if not permanently and version.deleted:
                raise refused(
                    404,
                    40406,
                    f"Subject '{subject}' SubjectVersion {version.number} was soft deleted. "
                    "Set permanent=true to delete permanently",
                )
            self._delete([version], permanently=permanently)
        return version.number

    def _delete(self, versions: Sequence[SubjectVersion], *, permanently: bool) -> None:
        for version in versions:
            if self.mode(version.subject).startswith("READONLY"):
                raise refused(422, 42205, f"Subject {version.subject} is in read-only mode")
            users = self.referenced_by(version)
            if users:
                raise refused(422, 42206, f"One or more references exist to the schema: {sorted(users)}")
            self._store.delete(version, permanently=permanently)

    def referenced_by(self, version: SubjectVersion) -> list[int]:
        """List the ids of the schemas that refer to a version."""
        return sorted(
            {
                user.schema_id
                for user in self.all_versions()
                if any((r.subject, r.version) == (version.subject, version.number) for r in user.schema.references)
            }
        )

    def problems(self, subject: str, schema: StoredSchema, number: str | int | None = None) -> list[str]:
        """List the reasons why a schema cannot become the subject's next version; empty if it can.

        Args:
            subject: The subject.
            schema: The new schema.
            number: The one version to compare with; None compares with those that the compatibility level asks for.
        """
        check_new(schema, self._resolve)
        if number is not None:
            return self._problems(subject, schema, [self.version(subject, number)])
        return self._problems(subject, schema, [v for v in self._store.versions(subject) if not v.deleted])

    def _problems(self, subject: str, schema: StoredSchema, live: list[SubjectVersion]) -> list[str]:
        level = self.level(subject)
        if level == "NONE" or not live:
            return []
        if not level.endswith("_TRANSITIVE"):
            live = live[-1:]
        problems: list[str] = []
        for version in live:
            if level.startswith(("BACKWARD", "FULL")):
                problems += differences(schema, version.schema, self._resolve)
            if level.startswith(("FORWARD", "FULL")):
                problems += differences(version.schema, schema, self._resolve)
            if problems:
                return [*problems, f"oldSchemaVersion: {version.number}", f"compatibility: {level}"]
        return problems

    def _resolve(self, reference: Reference) -> StoredSchema:
        return self.version(reference.subject, reference.version, deleted=True).schema

    def level(self, subject: str = "") -> str:
        """Return the compatibility level of a subject; of the empty subject, the global one."""
        return str(self.config(subject, inherit=True)["compatibilityLevel"])

    def config(self, subject: str = "", *, inherit: bool = False) -> dict[str, Any]:
        """Return the settings of a subject in the form of the REST interface.

        Raises:
            SchemaRegistryError: 40408, the subject has no settings of its own.
        """
        own = self._store.setting(subject, "config")
        if own is None and subject and not inherit:
            raise refused(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        if own is None and subject:
            own = self._store.setting("", "config")
        return {"compatibilityLevel": "BACKWARD"} if own is None else dict(json.loads(own))

    def set_config(self, subject: str, config: dict[str, Any]) -> dict[str, Any]:
        """Set the compatibility level of a subject (of the empty one: globally); other settings are only stored.

        Raises:
            SchemaRegistryError: 42203, the level does not exist.
        """
        level = str(config.get("compatibility") or config.get("compatibilityLevel") or self.level(subject)).upper()
        if level not in LEVELS:
            raise refused(422, 42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS).lower()}")
        others = {name: value for name, value in config.items() if name not in {"compatibility", "compatibilityLevel"}}
        self._store.put_setting(subject, "config", json.dumps({"compatibilityLevel": level, **others}))
        return {"compatibility": level, **others}

    def delete_config(self, subject: str = "") -> dict[str, Any]:
        before = self.config(subject)
        self._store.put_setting(subject, "config", None)
        return before

    def mode(self, subject: str = "") -> str:
        """Return the mode of a subject (READWRITE, READONLY, IMPORT), by default the global one."""
        return self._store.setting(subject, "mode") or self._store.setting("", "mode") or _MODES[0]

    def own_mode(self, subject: str) -> str:
        """Return the subject's own mode; raise SchemaRegistryError 40409 if it has none."""
        mode = self._store.setting(subject, "mode")
        if mode is None:
            raise refused(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")
        return mode

    def set_mode(self, subject: str, mode: str) -> str:
        mode = mode.upper()
        if mode not in _MODES:
            raise refused(422, 42204, f"Invalid mode. Valid values are {', '.join(_MODES)}")
        self._store.put_setting(subject, "mode", mode)
        return mode

    def delete_mode(self, subject: str = "") -> str:
        before = self.own_mode(subject) if subject else self.mode()
        self._store.put_setting(subject, "mode", None)
        return before


def _version_number(number: str | int) -> int | None:
    """Parse a version number; None stands for the latest."""
    if str(number) in {"latest", "-1"}:
        return None
    try:
        parsed_number = int(number)
    except ValueError:
        parsed_number = 0
    if not 1 <= parsed_number < 1 << 31:
        raise refused(
            422,
            42202,
            f"The specified version '{number}' is not a valid version id. Allowed values are between "
            '[1, 2^31-1] and the string "latest"',
        )
    return parsed_number


_registries: dict[str, Registry] = {}
_lock = threading.Lock()


def named(name: str) -> Registry:
    """Return this process's registry of a name (``mock://name``), made on first use."""
    with _lock:
        if name not in _registries:
            _registries[name] = Registry()
        return _registries[name]


def forget(name: str) -> None:
    """Drop a registry of this process with its contents."""
    with _lock:
        _registries.pop(name, None)
