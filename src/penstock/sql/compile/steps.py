"""What all compiled steps share: the builder, the errors, names of stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.api.builder import StreamsBuilder
from penstock.sql.analyse.fields import RowField
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.types import SqlType

__all__ = ["Compiling", "types_of"]


@dataclass(slots=True)
class Compiling:
    """The builder that a query is added to.

    Attributes:
        throws: Whether a bad time of a record ends the query.
        prefix: Before the names of stores, where one topology has several queries.
        stores: The stores that tables can be read from, by the identity of their step.
    """

    builder: StreamsBuilder
    errors: EvaluationErrors
    throws: bool = False
    prefix: str = ""
    taken: set[str] = field(default_factory=set)
    stores: dict[int, str] = field(default_factory=dict)

    def store(self, step: object, base_name: str) -> str:
        """Return a name for the store that has the rows of a step."""
        store_name = self.stores[id(step)] = self.name(base_name)
        return store_name

    def name(self, base_name: str) -> str:
        """Return a name for a store or topic that the query has not yet used."""
        clean = "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{self.prefix}{base_name}")
        free_name, number = clean, 1
        while free_name in self.taken:
            number += 1
            free_name = f"{clean}-{number}"
        self.taken.add(free_name)
        return free_name


def types_of(fields: Sequence[RowField]) -> list[SqlType]:
    """Return the types of columns."""
    return [each.type for each in fields]
