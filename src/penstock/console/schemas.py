"""The schemas of a registry: subjects, versions, differences between versions; registered and deleted for who may."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from penstock.base.json_depth import depth_of
from penstock.errors import ConfigError, InvalidStateError, SchemaRegistryError
from penstock.serde.schemas.client import confluent_client, registry_errors, shown_url
from penstock.serde.schemas.schema_settings import SchemaSettings

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema

__all__ = ["LEVELS", "SchemaVersion", "Schemas", "difference"]

LEVELS = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE",
)  # fmt: skip
KINDS = ("AVRO", "JSON", "PROTOBUF")
_NOT_FOUND = 404
_DEEPEST = 200
# A registry that never answers must not keep the threads that serve all pages. One more attempt, as the registry may
# have closed a connection that was idle.
_PATIENCE = {"timeout": 10.0, "max.retries": 1, "retries.wait.ms": 100}


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a subject.

    Attributes:
        subject: The subject.
        version: Its number.
        schema_id: The id of the schema in the registry.
        kind: AVRO, JSON or PROTOBUF.
        text: The schema; JSON is indented.
        references: Names of the schemas that it refers to, with their subjects and versions.
    """

    subject: str
    version: int
    schema_id: int
    kind: str
    text: str
    references: tuple[str, ...] = ()


class Schemas:
    """A schema registry. Nothing is kept: each look asks it.

    Args:
        settings: ``schema.registry.url`` and the client's settings, by Kafka's names.

    Raises:
        ConfigError: A setting is wrong, or the client is not installed.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        conf = _PATIENCE | SchemaSettings().with_defaults(settings).client()
        conf.pop("cache.latest.ttl.sec", None)
        self.url = shown_url(str(conf.get("url")))
        self._client = confluent_client(conf)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Return the names of all subjects, in order; with ``deleted`` those, too, whose versions are all deleted."""
        names = self._ask("list the subjects", lambda: sorted(map(str, self._client.get_subjects(deleted=deleted))))
        return list(names)

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject, with ``deleted`` those, too; none if there is no such subject."""
        try:
            what = f"list the versions of {subject!r}"
            return list(self._ask(what, lambda: sorted(map(int, self._client.get_versions(subject, deleted=deleted)))))
        except SchemaRegistryError as error:
            if error.facts.get("status") == _NOT_FOUND:
                return []
            raise

    def version(self, subject: str, version: int) -> SchemaVersion:
        """Return a version of a subject, also a deleted one."""
        registered = self._registered(subject, version)
        schema = registered.schema
        references = tuple(f"{each.name} ({each.subject}, {each.version})" for each in schema.references or ())
        kind = schema.schema_type or "AVRO"
        return SchemaVersion(
            subject, version, registered.schema_id, kind, _indented(schema.schema_str or ""), references
        )

    def compatibility(self, subject: str | None = None) -> tuple[str, bool]:
        """Return the level of compatibility, and whether the subject has it of its own."""
        try:
            return str(
                self._ask("read the compatibility", self._client.get_compatibility, subject)
            ), subject is not None
        except SchemaRegistryError as error:
            if subject is None or error.facts.get("status") != _NOT_FOUND:
                raise
            return self.compatibility()[0], False

    def is_compatible(self, subject: str, kind: str, text: str) -> bool:
        """Return whether a schema may follow the newest version of a subject."""
        what = f"compare a schema with {subject!r}"
        return bool(self._ask(what, self._client.test_compatibility, subject, _schema(kind, text)))

    def register(self, subject: str, kind: str, text: str) -> int:
        """Register a schema; return its id."""
        return int(
            self._ask(f"register a schema of {subject!r}", self._client.register_schema, subject, _schema(kind, text))
        )

    def delete(self, subject: str, version: int | None, *, permanently: bool = False) -> list[int]:
        """Delete a version of a subject, or all of them; return the versions that are gone.

        Ids of deleted versions stay readable, and the versions can be restored. ``permanently`` removes what is
        deleted already for good.
        """
        client, how = self._client, " permanently" if permanently else ""
        if version is None:
            return list(self._ask(f"delete {subject!r}{how}", client.delete_subject, subject, permanently))
        what = f"delete version {version} of {subject!r}{how}"
        return [int(self._ask(what, client.delete_version, subject, version, permanently))]

    def restore(self, subject: str, version: int) -> int:
        """Register the schema of a deleted version again, and return the number of the new version.

        That is how registries undelete: the id is the same, the number the next one.

        Raises:
            InvalidStateError: The version is not deleted.
        """
        if version in self.versions(subject):
            raise InvalidStateError(
                f"version {version} of {subject!r} is not deleted", hint="There is nothing to restore."
            )
        schema = self._registered(subject, version).schema  # whole, with its references
        self._ask(f"restore version {version} of {subject!r}", self._client.register_schema, subject, schema)
        restored = self._ask(f"look up version {version} of {subject!r}", self._client.lookup_schema, subject, schema)
        return int(restored.version)

    def _registered(self, subject: str, version: int) -> RegisteredSchema:
        what = f"read version {version} of {subject!r}"
        registered: RegisteredSchema = self._ask(what, self._client.get_version, subject, version, True)  # noqa: FBT003 - deleted ones too
        return registered

    def set_compatibility(self, subject: str, level: str) -> None:
        """Set the level of a subject."""
        if level not in LEVELS:
            raise ConfigError(f"there is no level {level[:40]!r}", hint=f"Levels are {', '.join(LEVELS)}.")
        self._ask(f"set the compatibility of {subject!r}", self._client.set_compatibility, subject, level)

    def _ask(self, what: str, call: Any, *arguments: Any) -> Any:
        self._client.clear_caches()  # it would register nothing whose id it remembers, also if it was deleted since
        try:
            with registry_errors(self.url, what):
                return call(*arguments)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SchemaRegistryError(
                f"what {self.url} answers to the request to {what} is not the answer of a schema registry",
                hint="Check the address: http://localhost:8081 of a registry, without a path.",
            ) from error


def _schema(kind: str, text: str) -> Schema:
    from confluent_kafka.schema_registry import Schema

    if kind not in KINDS:
        raise ConfigError(f"there is no type {kind[:40]!r} of schemas", hint=f"Types are {', '.join(KINDS)}.")
    return Schema(text, kind)


def _indented(text: str) -> str:
    r"""Return a schema with a line for each of its parts, if it is JSON.

    >>> print(_indented('{"type":"string"}'))
    {
      "type": "string"
    }
    """
    try:
        if depth_of(text.encode("utf-8", "replace")) > _DEEPEST:
            return text
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text.replace("\r\n", "\n")


def difference(before: str, after: str) -> list[tuple[str, str]]:
    r"""Return the lines of two texts: what happened to a line (``+``, ``-`` or a blank), and the line.

    >>> difference("a\nb", "a\nc")
    [(' ', 'a'), ('-', 'b'), ('+', 'c')]
    """
    one, other = before.splitlines(), after.splitlines()
    lines: list[tuple[str, str]] = []
    # Not ndiff, which compares each line with each by its letters: minutes for some hundreds of fields.
    for kind, first, end, first_after, end_after in SequenceMatcher(None, one, other).get_opcodes():
        if kind == "equal":
            lines += [(" ", line) for line in one[first:end]]
        else:
            lines += [("-", line) for line in one[first:end]] + [("+", line) for line in other[first_after:end_after]]
    return lines
