"""The registry: registering, looking up and deleting schemas, with the compatibility checks."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.serde.registry.compatibility import check_new, differences
from penstock.serde.registry.model import Reference, StoredSchema, SubjectVersion, refused
from penstock.serde.registry.store import SchemaStore

__all__ = ["LEVELS", "Registry", "forget", "named"]

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

    def all_versions(self) -> list[SubjectVersion]:
        return [version for version in self._store.all_versions() if not version.deleted]

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
