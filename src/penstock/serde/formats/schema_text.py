"""The text of a schema, with the texts that it refers to."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SchemaText"]


@dataclass(frozen=True)
class SchemaText:
    """A schema's text and the texts that it refers to (by name), in the order in which they have to be registered."""

    text: str
    kind: str = "AVRO"
    referred: tuple[tuple[str, str], ...] = ()
