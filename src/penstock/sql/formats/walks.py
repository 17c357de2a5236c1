"""Bounds for walks over the types of schemas from elsewhere: a type that holds itself has no columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.base.json_depth import depth_of

__all__ = ["SchemaWalk", "schema_document"]

MOST_LEVELS = 50  # of types in each other
MOST_FIELDS = 10_000  # of a schema, those of its inner types included
MOST_NESTED = 200  # lists and objects of a schema's text in each other


class SchemaWalk:
    """The types that a walk is inside of, and the number of fields that it has seen."""

    def __init__(self) -> None:
        self._above: list[str] = []
        self._fields = 0

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Walk through a type; an empty name is that of a type without one.

        Raises:
            ValueError: It holds itself, or types are nested too deep.
        """
        if name and name in self._above:
            between = [each for each in self._above[self._above.index(name) + 1 :] if each]
            through = f", through {', '.join(between)}" if between else ""
            raise ValueError(f"{name} holds itself{through}, and SQL has no such type; declare columns without it")
        if len(self._above) >= MOST_LEVELS:
            raise ValueError(f"its types are nested more than {MOST_LEVELS} deep; declare columns without them")
        self._above.append(name)
        try:
            yield
        finally:
            self._above.pop()

    def field(self) -> None:
        """Count a field.

        Raises:
            ValueError: There are too many.
        """
        self._fields += 1
        if self._fields > MOST_FIELDS:
            raise ValueError(f"it has more than {MOST_FIELDS:,} fields, those of its types included; declare columns")


def schema_document(text: str) -> Any:
    """The JSON of a schema's text.

    Raises:
        ValueError: It is not JSON, or nested too deep.
    """
    if depth_of(text.encode("utf-8", "surrogatepass")) > MOST_NESTED:
        raise ValueError(f"its text is nested more than {MOST_NESTED} deep")
    return json.loads(text)
