"""Streams, tables, types, variables and settings that statements have made: in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.sql.functions import UserFunctions
from penstock.sql.parse.statement_nodes import ColumnRole, SourceKind
from penstock.sql.types import BIGINT, INTEGER, SqlType
from penstock.sql.types.sql_type import quoted

__all__ = [
    "BOUNDS",
    "PSEUDO",
    "RESERVED_COLUMNS",
    "Catalog",
    "DataFormat",
    "Source",
    "SourceColumn",
    "SourceWindow",
    "TimestampColumn",
]

PSEUDO: dict[str, SqlType] = {"ROWTIME": BIGINT, "ROWPARTITION": INTEGER, "ROWOFFSET": BIGINT}
BOUNDS: dict[str, SqlType] = {"WINDOWSTART": BIGINT, "WINDOWEND": BIGINT}
RESERVED_COLUMNS = frozenset({*PSEUDO, *BOUNDS})


@dataclass(frozen=True, slots=True)
class DataFormat:
    """The format of keys or values.

    Attributes:
        name: JSON, DELIMITED, KAFKA, NONE, AVRO, PROTOBUF, PROTOBUF_NOSR or JSON_SR.
        properties: Properties such as the delimiter, by their names without KEY_ or VALUE_.
        wrap: Whether a single column is a field of a record; None if that is up to the format.
    """

    name: str
    properties: tuple[tuple[str, str], ...] = ()
    wrap: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the format as JSON."""
        return {"format": self.name, "properties": dict(self.properties), "wrap": self.wrap}


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """The windows of a source's keys; sessions have no size."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION"]
    size_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TimestampColumn:
    """The column that has the time of a record, and the pattern of its text if it is a text."""

    name: str
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source."""

    name: str
    type: SqlType
    role: ColumnRole = "VALUE"
    header: str | None = None

    @property
    def is_key(self) -> bool:
        """Whether it is part of the key."""
        return self.role in ("KEY", "PRIMARY KEY")

    @property
    def is_header(self) -> bool:
        """Whether it is read from the headers of records."""
        return self.role in ("HEADERS", "HEADER")

    def __str__(self) -> str:
        role = {"KEY": " KEY", "PRIMARY KEY": " PRIMARY KEY", "HEADERS": " HEADERS"}.get(self.role, "")
        if self.role == "HEADER":
            role = f" HEADER('{self.header}')"
        return f"{quoted(self.name)} {self.type}{role}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stream or a table over a topic.

    Attributes:
        partitions: The partition count of the topic, if a statement gave one.
        read_only: Whether it is a SOURCE stream or table.
        query: The id of the query that writes it; None for a source over a topic of others.
        text: The statement that made it.
    """

    name: str
    kind: SourceKind
    columns: tuple[SourceColumn, ...]
    topic: str
    key_format: DataFormat
    value_format: DataFormat
    window: SourceWindow | None = None
    timestamp: TimestampColumn | None = None
    partitions: int | None = None
    replicas: int | None = None
    read_only: bool = False
    query: str | None = None
    text: str = ""

    @property
    def is_table(self) -> bool:
        """Whether it is a table."""
        return self.kind == "TABLE"

    @property
    def keys(self) -> tuple[SourceColumn, ...]:
        """The key columns."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def values(self) -> tuple[SourceColumn, ...]:
        """The columns of the value."""
        return tuple(column for column in self.columns if column.role == "VALUE")

    @property
    def headers(self) -> tuple[SourceColumn, ...]:
        """The columns that are read from headers."""
        return tuple(column for column in self.columns if column.is_header)

    def schema(self) -> str:
        """Return the columns as text.

        >>> key, value = SourceColumn("K", INTEGER, "KEY"), SourceColumn("V", BIGINT)
        >>> form = DataFormat("JSON")
        >>> named = {"name": "S", "kind": "STREAM", "topic": "s", "key_format": form, "value_format": form}
        >>> Source(columns=(key, value), **named).schema()
        '`K` INTEGER KEY, `V` BIGINT'
        """
        return ", ".join(str(column) for column in self.columns)


@dataclass(slots=True)
class Catalog:
    """Sources, custom types, variables, settings and topics, in memory.

    Attributes:
        sources: Streams and tables by name.
        types: Custom types by name.
        settings: What SET has set, and the settings of the session.
        variables: What DEFINE has defined, by names in upper case.
        topics: The partition counts of topics that are known.
        query_count: The number of queries that have been made.
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
    query_count: int = 0
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
            self.query_count,
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
        number = self.query_count
        self.query_count += 1
        return f"{prefix}_{name}_{number}"

    def readers(self, name: str) -> list[str]:
        """Return the ids of the queries that read a source."""
        return [query_id for query_id, plan in self.queries.items() if name in plan.reads]

    def writers(self, name: str) -> list[str]:
        """Return the ids of the queries that write a source."""
        return [query_id for query_id, plan in self.queries.items() if plan.sink == name]
