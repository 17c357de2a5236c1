"""A schema registry with the rules and the REST interface of Confluent's, stored in a file or in memory."""

from __future__ import annotations

from penstock.serde.registry.model import Reference, StoredSchema
from penstock.serde.registry.service import Registry, named

__all__ = ["Reference", "Registry", "StoredSchema", "named"]
