"""Columns from the schemas of a registry, as statements without columns take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.serde.schemas.schema_settings import REGISTRY_PREFIXES
from penstock.sql.catalog import DataFormat
from penstock.sql.compile.serdes import format_properties
from penstock.sql.formats import inferred_columns
from penstock.sql.types import SqlType

__all__ = ["inference"]

Infer = Callable[[str, str, DataFormat], Sequence[tuple[str, SqlType]] | None]


def inference(app: Mapping[str, Any]) -> Infer | None:
    """Make the function that finds the columns of a topic's keys or values; None without a registry in the settings."""
    registry = {name: str(value) for name, value in app.items() if name.startswith(REGISTRY_PREFIXES)}
    if "schema.registry.url" not in registry:
        return None

    def infer(topic: str, part: str, form: DataFormat) -> Sequence[tuple[str, SqlType]] | None:
        return inferred_columns(form.name, topic, replace(format_properties(form, part), registry=registry))

    return infer
