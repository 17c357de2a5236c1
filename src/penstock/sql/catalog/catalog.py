"""The catalog: all that statements have made and set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.sql.catalog.source import DataFormat, Source
from penstock.sql.functions import UserFunctions
from penstock.sql.types import SqlType

__all__ = ["Catalog"]


@dataclass(slots=True)
class Catalog:
    """Sources, custom types, variables, settings and topics, in memory.

    Attributes:
        sources: Streams and tables by name.
        types: Custom types by name.
        settings: What SET has set, and the settings of the session.
        variables: What DEFINE has defined, by names in upper case.
        topics: The partition counts of topics that are known.
        made: The number of queries that have been made.
        infer: Finds the columns of a topic's keys or values in a registry, by topic, ``key`` or ``value``, and format;
            None without a schema.
        queries: The plans of persistent queries by id, in the order in which they were made.
        functions: The functions that users have written.
        typed: The value columns of topics whose serde in the program is a type.
    """

    sources: dict[str, Source] = field(default_factory=dict)
    types: dict[str, SqlType] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    queries: dict[str, Any] = field(default_factory=dict)
    made: int = 0
    infer: Callable[[str, str, DataFormat], Sequence[tuple[str, SqlType]] | None] | None = None
    functions: UserFunctions = field(default_factory=UserFunctions)
    typed: dict[str, Sequence[tuple[str, SqlType]]] = field(default_factory=dict)

    def copy(self) -> Catalog:
        """Return a copy that can be changed without changing this one: a script is applied whole or not at all."""
        return Catalog(
            dict(self.sources),
            dict(self.types),
            dict(self.settings),
            dict(self.variables),
            dict(self.topics),
            dict(self.queries),
            self.made,
            self.infer,
            self.functions.copy(),
            dict(self.typed),
        )

    def setting(self, name: str, otherwise: str = "") -> str:
        """Return a setting by its name."""
        return self.settings.get(name, otherwise)

    def flag(self, name: str, *, otherwise: bool) -> bool:
        """Return a setting that is true or false."""
        text = self.settings.get(name)
        return otherwise if text is None else text.lower() == "true"

    def next_query_id(self, prefix: str, name: str) -> str:
        """Return the id of the next query, such as ``CSAS_OUTPUT_0``."""
        number = self.made
        self.made += 1
        return f"{prefix}_{name}_{number}"

    def readers(self, name: str) -> list[str]:
        """Return the ids of the queries that read a source."""
        return [query_id for query_id, plan in self.queries.items() if name in plan.reads]

    def writers(self, name: str) -> list[str]:
        """Return the ids of the queries that write a source."""
        return [query_id for query_id, plan in self.queries.items() if plan.sink == name]
