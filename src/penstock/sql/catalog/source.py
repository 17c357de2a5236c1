"""Streams and tables: columns, keys, formats, topic, windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from penstock.sql.parse.statement_nodes import ColumnRole, SourceKind
from penstock.sql.types import BIGINT, INTEGER, SqlType
from penstock.sql.types.sql_type import quoted

__all__ = [
    "BOUNDS",
    "PSEUDO",
    "RESERVED_COLUMNS",
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
