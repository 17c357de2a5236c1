"""The contents of a registry: schemas, and the versions of subjects that point to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from penstock.errors import SchemaRegistryError
from penstock.serde.registry.documents import BadDocumentError, parse_json

__all__ = ["Reference", "StoredSchema", "SubjectVersion", "refused"]


def refused(status: int, code: int, message: str) -> SchemaRegistryError:
    """Make the error of the REST interface: HTTP status, Confluent's error code, text."""
    return SchemaRegistryError(message, status=status, code=code)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to a schema of another subject, with the name under which it is used."""

    name: str
    subject: str
    version: int

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class StoredSchema:
    """A schema: its text, kind (``AVRO``, ``JSON``, ``PROTOBUF``) and references.

    ``metadata`` and ``rule_set`` are stored and returned, but have no effect.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None

    @classmethod
    def of_request(cls, body: Mapping[str, Any]) -> StoredSchema:
        """Read the schema from the body of a request.

        Raises:
            SchemaRegistryError: 42201, the body has no schema.
        """
        text, kind = body.get("schema"), str(body.get("schemaType") or "AVRO").upper()
        if not isinstance(text, str) or not text.strip():
            raise refused(422, 42201, "Empty schema")
        try:
            references = tuple(
                Reference(str(r["name"]), str(r["subject"]), int(r["version"])) for r in body.get("references") or ()
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise refused(422, 42201, "references is a list of objects with name, subject and version") from error
        return cls(text, kind, references, _json(body, "metadata"), _json(body, "ruleSet"))

    @cached_property
    def canonical(self) -> str:
        """The text in a form that is equal for texts which differ only in white space or in the order of JSON keys."""
        if self.kind == "PROTOBUF":
            return " ".join(self.text.split())
        try:
            return json.dumps(parse_json(self.text), sort_keys=True, separators=(",", ":"))
        except BadDocumentError:
            return self.text.strip()

    @cached_property
    def guid(self) -> str:
        """An id that equal schemas share in every registry."""
        parts = [self.kind, self.canonical, repr(self.references), self.metadata or "", self.rule_set or ""]
        return str(UUID(bytes=hashlib.md5("\0".join(parts).encode(), usedforsecurity=False).digest()))

    def document(self) -> dict[str, Any]:
        """Make the document of the REST interface, which leaves defaults out."""
        shown: dict[str, Any] = {"schema": self.text}
        if self.kind != "AVRO":
            shown["schemaType"] = self.kind
        if self.references:
            shown["references"] = [reference.document() for reference in self.references]
        if self.metadata:
            shown["metadata"] = json.loads(self.metadata)
        if self.rule_set:
            shown["ruleSet"] = json.loads(self.rule_set)
        return shown


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A version of a subject."""

    subject: str
    number: int
    schema_id: int
    schema: StoredSchema
    deleted: bool

    def document(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "version": self.number,
            "id": self.schema_id,
            "guid": self.schema.guid,
            **self.schema.document(),
        }


def _json(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise refused(422, 42201, f"{name} is a JSON object")
    return json.dumps(value, sort_keys=True) if value else None
