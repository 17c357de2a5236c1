"""What a registry holds: schemas, and the versions of subjects that point to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from penstock.errors import SchemaRegistryError

__all__ = ["Reference", "Schema", "Version", "refused"]


def refused(status: int, code: int, message: str) -> SchemaRegistryError:
    """The error that the REST interface answers with: HTTP status, Confluent's error code, text."""
    return SchemaRegistryError(message, status=status, code=code)


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema of another subject by the name under which it is used."""

    name: str
    subject: str
    version: int

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class Schema:
    """One schema: its text, kind (``AVRO``, ``JSON``, ``PROTOBUF``) and references.

    ``metadata`` and ``rule_set`` are kept and given back, not acted upon.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None

    @classmethod
    def of_request(cls, body: Mapping[str, Any]) -> Schema:
        """The schema of a request's body.

        Raises:
            SchemaRegistryError: 42201, the body has none.
        """
        text, kind = body.get("schema"), str(body.get("schemaType") or "AVRO").upper()
        if not isinstance(text, str) or not text.strip():
            raise refused(422, 42201, "Empty schema")
        references = tuple(
            Reference(str(r["name"]), str(r["subject"]), int(r["version"])) for r in body.get("references") or ()
        )
        return cls(text, kind, references, _json(body.get("metadata")), _json(body.get("ruleSet")))

    @cached_property
    def canonical(self) -> str:
        """Equal for texts that differ only in white space, or in the order of a JSON object's names."""
        if self.kind == "PROTOBUF":
            return " ".join(self.text.split())
        try:
            return json.dumps(json.loads(self.text), sort_keys=True, separators=(",", ":"))
        except ValueError:
            return self.text.strip()

    @cached_property
    def guid(self) -> str:
        """The same for equal schemas in every registry."""
        parts = [self.kind, self.canonical, repr(self.references), self.metadata or "", self.rule_set or ""]
        return str(UUID(bytes=hashlib.md5("\0".join(parts).encode(), usedforsecurity=False).digest()))

    def document(self) -> dict[str, Any]:
        """As the REST interface shows it; what is usual is left out."""
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
class Version:
    """A subject's version."""

    subject: str
    number: int
    schema_id: int
    schema: Schema
    deleted: bool

    def document(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "version": self.number,
            "id": self.schema_id,
            "guid": self.schema.guid,
            **self.schema.document(),
        }


def _json(value: Any) -> str | None:
    return json.dumps(value, sort_keys=True) if value else None
