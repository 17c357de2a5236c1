"""What all formats need of a schema: its text, and bounds for walks over its types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.serde.data import DataError

__all__ = ["SchemaText", "SchemaWalk"]


@dataclass(frozen=True)
class SchemaText:
    """A schema's text and the texts that it refers to (by name), in the order in which they have to be registered."""

    text: str
    kind: str = "AVRO"
    referred: tuple[tuple[str, str], ...] = ()


MOST_LEVELS = 50  # of types in each other
MOST_FIELDS = 10_000  # of a schema, those of its inner types included


class SchemaWalk:
    """The types that a walk is inside of, and the number of fields that it has seen."""

    def __init__(self) -> None:
        self._above: list[str] = []
        self._fields = 0

    @contextmanager
    def inside(self, name: str = "") -> Iterator[None]:
        """Walk through a type; an empty name is that of a type without one.

        Raises:
            DataError: It holds itself, or types are nested too deep.
        """
        if name and name in self._above:
            between = [each for each in self._above[self._above.index(name) + 1 :] if each]
            through = f", through {', '.join(between)}" if between else ""
            raise DataError(f"{name} holds itself{through}, and neither Connect nor SQL has such a type")
        if len(self._above) >= MOST_LEVELS:
            raise DataError(f"the types of the schema are nested more than {MOST_LEVELS} deep")
        self._above.append(name)
        try:
            yield
        finally:
            self._above.pop()

    def field(self) -> None:
        """Count a field.

        Raises:
            DataError: There are too many.
        """
        self._fields += 1
        if self._fields > MOST_FIELDS:
            raise DataError(f"the schema has more than {MOST_FIELDS:,} fields, those of its types included")
