"""What the JSON interface says of the schemas of a registry, and the changes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.console.schemas import Schemas
from penstock.console.web.page import NotThereError, Visit, whole
from penstock.errors import ConfigError

__all__ = ["delete", "register", "set_compatibility", "subject", "subjects"]


def _registry(visit: Visit) -> Schemas:
    if visit.site.schemas is None:
        raise NotThereError("no schema registry is known", hint="Start the console with --registry URL.")
    return visit.site.schemas


def subjects(visit: Visit) -> Any:
    """List the subjects, and the compatibility of the registry."""
    registry = _registry(visit)
    return {"subjects": registry.subjects(), "compatibility": registry.compatibility()[0]}


def subject(visit: Visit) -> Any:
    """Return the versions of the subject ``name``, and one of them: ``version``, by default the newest."""
    registry, name = _registry(visit), visit.get("name")
    numbers = registry.versions(name)
    if not numbers:
        raise NotThereError(f"there is no subject {name[:100]!r}", hint="/schemas lists them.")
    number = whole(visit.get("version"), "version", numbers[-1], 2**31)
    return {
        "versions": numbers,
        "compatibility": registry.compatibility(name)[0],
        **asdict(registry.version(name, number)),
    }


def register(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Register ``schema`` of a ``type`` under ``subject``; ``dry_run=true`` says whether it is compatible."""
    registry, name = _registry(visit), _text(body, "subject").strip()
    kind, schema = str(body.get("type", "AVRO")), _text(body, "schema")
    if visit.get("dry_run").lower() in ("true", "1", "yes"):
        numbers = registry.versions(name)
        if not numbers:
            note = "The subject is new."
        elif registry.is_compatible(name, kind, schema):
            note = f"It is compatible: {registry.compatibility(name)[0]}."
        else:
            note = f"It is not compatible ({registry.compatibility(name)[0]}): the registry will refuse it."
        return {"subject": name, "note": note, "moves": []}
    schema_id = registry.register(name, kind, schema)
    return {"subject": name, "changes": [f"{name}: schema id {schema_id}"], "id": schema_id}


def delete(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Delete ``version`` of ``subject``, or all of its versions."""
    name, version = _text(body, "subject"), body.get("version")
    if isinstance(version, bool) or not isinstance(version, int | None):
        raise ConfigError("version is a whole number", hint="Leave it out to delete the subject.")
    gone = _registry(visit).delete(name, version)
    return {"subject": name, "changes": [f"{name}: versions {', '.join(map(str, gone))} deleted"], "versions": gone}


def set_compatibility(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Set the ``level`` of ``subject``."""
    registry, name, level = _registry(visit), _text(body, "subject"), _text(body, "level")
    before = registry.compatibility(name)[0]
    registry.set_compatibility(name, level)
    return {"subject": name, "changes": [f"{name}: compatibility {before} -> {level}"]}


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} is missing", hint=f"Send {name}, a text.")
    return value
