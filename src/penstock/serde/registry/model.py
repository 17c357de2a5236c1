"""The contents of a registry: schemas, and the versions of subjects that point to them, and JSON from clients."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from penstock.base.json_depth import depth_of
from penstock.errors import SchemaRegistryError

__all__ = ["BadDocumentError", "Reference", "StoredSchema", "SubjectVersion", "parse_json", "parse_object", "refused"]

MAX_DEPTH = 100


class BadDocumentError(ValueError):
    """The text is not valid JSON, or nested too deeply."""


def parse_json(text: bytes | str) -> Any:
    """Parse JSON text.

    >>> parse_json('{"a": [1]}')
    {'a': [1]}

    Raises:
        BadDocumentError: The text is not JSON in UTF-8, contains NaN, an infinite number or lone surrogates, or is
            nested more deeply than `MAX_DEPTH`.
    """
    try:
        raw = text.encode() if isinstance(text, str) else text
        if depth_of(raw) > MAX_DEPTH:
            _refuse_depth()
        document = json.loads(raw.decode(), parse_constant=_refuse)
        json.dumps(document, ensure_ascii=False).encode()  # fails on lone surrogates, which nothing can store
    except BadDocumentError:
        raise
    except UnicodeError as error:
        raise BadDocumentError("the text has characters that UTF-8 cannot encode") from error
    except ValueError as error:
        raise BadDocumentError(f"not JSON: {str(error)[:200]}") from error
    return document


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse the body of a request as a JSON object; an empty body is an empty object.

    Raises:
        BadDocumentError: The body is not a JSON object; see `parse_json`.
    """
    document = parse_json(body) if body.strip() else {}
    if not isinstance(document, dict):
        raise BadDocumentError("the body is not a JSON object")
    return document


def _refuse_depth() -> None:
    raise BadDocumentError(f"JSON nested more than {MAX_DEPTH} levels deep is not taken")


def _refuse(name: str) -> Any:
    raise BadDocumentError(f"{name} is not JSON")


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
