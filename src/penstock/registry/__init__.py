"""A schema registry: the rules and the REST interface of Confluent's, over a file or in memory."""

from __future__ import annotations

from penstock.registry.local import named
from penstock.registry.model import Reference, Schema
from penstock.registry.service import Registry

__all__ = ["Reference", "Registry", "Schema", "named"]
