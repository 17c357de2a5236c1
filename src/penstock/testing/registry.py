"""A schema registry in the process of the test."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.serde.registry.model import StoredSchema
from penstock.serde.registry.service import Registry, forget, named

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

__all__ = ["EmbeddedRegistry"]


class EmbeddedRegistry:
    """A registry with the real rules but no server. Serdes of this process use it by its ``mock://`` URL.

    >>> with EmbeddedRegistry() as registry:
    ...     registry.register("hits-value", {"type": "record", "name": "Hit", "fields": []})
    ...     registry.subjects()
    1
    ['hits-value']

    Args:
        name: The name in the URL; by default one that nobody else has.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name or uuid.uuid4().hex
        self._registry = named(self.name)

    @property
    def url(self) -> str:
        """The value for ``schema.registry.url``."""
        return f"mock://{self.name}"

    @property
    def registry(self) -> Registry:
        """The registry itself: versions, compatibility, deletion."""
        return self._registry

    def client(self) -> SchemaRegistryClient:
        """Return confluent-kafka's client of this registry, for its serializers."""
        from penstock.serde.schemas.client import confluent_client

        return confluent_client({"url": self.url})

    def register(self, subject: str, schema: str | Mapping[str, Any] | Sequence[Any], kind: str = "AVRO") -> int:
        """Register a schema, and return its id.

        Args:
            subject: The subject, for example ``orders-value``.
            schema: The schema as text, or as parsed JSON.
            kind: The type of schema: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._registry.register(subject, StoredSchema(text, kind)).schema_id

    def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        return self._registry.subjects()

    def close(self) -> None:
        """Delete all schemas."""
        forget(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
