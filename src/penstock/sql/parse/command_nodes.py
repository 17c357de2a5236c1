"""Statements that ask, steer and check; and the union of all statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.sql.parse.expression_nodes import Expression
from penstock.sql.parse.nodes import Node
from penstock.sql.parse.query_nodes import Duration, Query
from penstock.sql.parse.statement_nodes import ColumnDefinition, Definition, Property, SourceKind

__all__ = [
    "AssertSchema",
    "AssertSource",
    "AssertTombstone",
    "AssertTopic",
    "AssertValues",
    "Command",
    "Define",
    "Describe",
    "DescribeAll",
    "Explain",
    "Listed",
    "Print",
    "RunScript",
    "SetProperty",
    "Show",
    "Statement",
    "Steer",
    "Undefine",
    "UnsetProperty",
]

Listed = Literal[
    "STREAMS",
    "TABLES",
    "TOPICS",
    "QUERIES",
    "FUNCTIONS",
    "PROPERTIES",
    "TYPES",
    "VARIABLES",
    "CONNECTORS",
    "SOURCE CONNECTORS",
    "SINK CONNECTORS",
    "CONNECTOR PLUGINS",
]


@dataclass(frozen=True, slots=True)
class Steer(Node):
    """``TERMINATE``, ``PAUSE`` or ``RESUME``: one query by its id, or all."""

    action: Literal["TERMINATE", "PAUSE", "RESUME"]
    query_id: str | None


@dataclass(frozen=True, slots=True)
class Show(Node):
    """``SHOW`` (or ``LIST``).

    Attributes:
        internal: Whether topics are listed with the internal ones: SHOW ALL TOPICS.
    """

    what: Listed
    extended: bool = False
    internal: bool = False


@dataclass(frozen=True, slots=True)
class Describe(Node):
    """``DESCRIBE`` one stream or table, function or connector."""

    kind: Literal["SOURCE", "FUNCTION", "CONNECTOR"]
    name: str
    extended: bool = False


@dataclass(frozen=True, slots=True)
class DescribeAll(Node):
    """``DESCRIBE STREAMS`` or ``DESCRIBE TABLES``."""

    what: Literal["STREAMS", "TABLES"]
    extended: bool = False


@dataclass(frozen=True, slots=True)
class Explain(Node):
    """``EXPLAIN`` a statement, or a running query by its id."""

    subject: Statement | str


@dataclass(frozen=True, slots=True)
class Print(Node):
    """``PRINT`` a topic, whose name is taken as it is written."""

    topic: str
    from_beginning: bool = False
    interval: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SetProperty(Node):
    """``SET 'name' = 'value'``."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class UnsetProperty(Node):
    """``UNSET 'name'``."""

    name: str


@dataclass(frozen=True, slots=True)
class Define(Node):
    """``DEFINE name = 'value'``."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Undefine(Node):
    """``UNDEFINE name``."""

    name: str


@dataclass(frozen=True, slots=True)
class AssertTopic(Node):
    """``ASSERT [NOT EXISTS] TOPIC``."""

    topic: str
    properties: tuple[Property, ...] = ()
    timeout: Duration | None = None
    exists: bool = True


@dataclass(frozen=True, slots=True)
class AssertSchema(Node):
    """``ASSERT [NOT EXISTS] SCHEMA``: by its subject, its id or both."""

    subject: str | None = None
    schema_id: int | None = None
    timeout: Duration | None = None
    exists: bool = True


@dataclass(frozen=True, slots=True)
class AssertValues(Node):
    """``ASSERT VALUES name (column, ...) VALUES (value, ...)``, of test files."""

    name: str
    columns: tuple[str, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class AssertTombstone(Node):
    """``ASSERT NULL VALUES name (column, ...) KEY (value, ...)``, of test files."""

    name: str
    columns: tuple[str, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class AssertSource(Node):
    """``ASSERT STREAM`` or ``ASSERT TABLE``, of test files."""

    kind: SourceKind
    name: str
    columns: tuple[ColumnDefinition, ...] = ()
    properties: tuple[Property, ...] = ()


@dataclass(frozen=True, slots=True)
class RunScript(Node):
    """``RUN SCRIPT 'file'``, of prompts and test files."""

    path: str


Command = (
    Steer
    | Show
    | Describe
    | DescribeAll
    | Explain
    | Print
    | SetProperty
    | UnsetProperty
    | Define
    | Undefine
    | AssertTopic
    | AssertSchema
    | AssertValues
    | AssertTombstone
    | AssertSource
    | RunScript
)
Statement = Definition | Command | Query
