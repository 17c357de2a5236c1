"""Queries and statements as they are written, and the union of all statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from penstock.sql.parse.expression_nodes import Expression, Node, TypeNode
from penstock.sql.parse.expressions import LiteralNode
from penstock.sql.parse.tokens import TextPosition

__all__ = [
    "UNITS",
    "UNIT_WORDS",
    "AddedColumn",
    "AllColumns",
    "AllFields",
    "AlterSource",
    "AlterSystem",
    "AssertSchema",
    "AssertSource",
    "AssertTombstone",
    "AssertTopic",
    "AssertValues",
    "ColumnDefinition",
    "ColumnRole",
    "Command",
    "CreateAs",
    "CreateConnector",
    "CreateSource",
    "CreateType",
    "Define",
    "Definition",
    "Describe",
    "DescribeAll",
    "DropConnector",
    "DropSource",
    "DropType",
    "Duration",
    "Explain",
    "GroupingClause",
    "InsertInto",
    "InsertValues",
    "JoinClause",
    "JoinKind",
    "Listed",
    "NamedSource",
    "Ordering",
    "Print",
    "Property",
    "Query",
    "Relation",
    "RunScript",
    "SelectItem",
    "Selected",
    "SetProperty",
    "Show",
    "SourceKind",
    "Statement",
    "Steer",
    "Subquery",
    "Undefine",
    "Unit",
    "UnsetProperty",
    "WindowClause",
    "WindowKind",
    "With",
    "Within",
]

# Queries

Unit = Literal["DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"]
UNITS: tuple[Unit, ...] = get_args(Unit)
# The words that stand for units of time, in durations and as the first arguments of some functions.
UNIT_WORDS = frozenset(f"{unit}{plural}" for unit in UNITS for plural in ("", "S"))
JoinKind = Literal["INNER", "LEFT", "RIGHT", "FULL"]
WindowKind = Literal["TUMBLING", "HOPPING", "SESSION", "SLIDING"]


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """``5 MINUTES``."""

    amount: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Selected(Node):
    """An expression of SELECT, with its name if one is given."""

    expression: Expression
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class AllColumns(Node):
    """``*`` or ``source.*``."""

    source: str | None = None


@dataclass(frozen=True, slots=True)
class AllFields(Node):
    """``base->*``: each field of a struct as a column."""

    base: Expression


SelectItem = Selected | AllColumns | AllFields


@dataclass(frozen=True, slots=True)
class NamedSource(Node):
    """A stream, a table, or a query of WITH, by its name."""

    name: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Subquery(Node):
    """``(SELECT ...) AS alias``; an extension of ksqlDB's language."""

    query: Query
    alias: str


Relation = NamedSource | Subquery


@dataclass(frozen=True, slots=True)
class Within(Node):
    """``WITHIN (before, after) GRACE PERIOD grace``; with one duration, both are the same."""

    before: Duration
    after: Duration
    grace: Duration | None = None


@dataclass(frozen=True, slots=True)
class JoinClause(Node):
    """One join, with all that is left of it."""

    kind: JoinKind
    right: Relation
    condition: Expression
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class WindowClause(Node):
    """``WINDOW kind (...)``.

    Attributes:
        kind: SLIDING is an extension of ksqlDB's language.
        size: Of a session, the gap of inactivity; of a sliding window, the time difference.
        advance: Of a hopping window.
        retention: For how long the windows can be queried.
        grace: For how long late records are accepted.
    """

    kind: WindowKind
    size: Duration
    advance: Duration | None = None
    retention: Duration | None = None
    grace: Duration | None = None


@dataclass(frozen=True, slots=True)
class GroupingClause(Node):
    """The expressions of GROUP BY or PARTITION BY."""

    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Ordering(Node):
    """An expression of ORDER BY; an extension of ksqlDB's language.

    Attributes:
        nulls: FIRST or LAST, if that is said.
    """

    expression: Expression
    descending: bool = False
    nulls: Literal["FIRST", "LAST"] | None = None


@dataclass(frozen=True, slots=True)
class With(Node):
    """``name AS (SELECT ...)``; an extension of ksqlDB's language."""

    name: str
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Node):
    """``SELECT`` with its clauses. By itself it is a statement: a push query if it has EMIT, else a pull query.

    Attributes:
        emit: CHANGES or FINAL, if that is said.
        idle: For how long no record must come until EMIT FINAL closes all windows; an extension of ksqlDB's language.
        offset: Results that are left out before the first; an extension of ksqlDB's language.
    """

    items: tuple[SelectItem, ...]
    source: Relation
    joins: tuple[JoinClause, ...] = ()
    window: WindowClause | None = None
    where: Expression | None = None
    group_by: GroupingClause | None = None
    partition_by: GroupingClause | None = None
    having: Expression | None = None
    order_by: tuple[Ordering, ...] = ()
    emit: Literal["CHANGES", "FINAL"] | None = None
    idle: Duration | None = None
    limit: int | None = None
    offset: int | None = None
    ctes: tuple[With, ...] = ()


# Statements that define and fill

SourceKind = Literal["STREAM", "TABLE"]
ColumnRole = Literal["VALUE", "KEY", "PRIMARY KEY", "HEADERS", "HEADER"]


@dataclass(frozen=True, slots=True)
class Property(Node):
    """``name = value`` in WITH; unquoted names are in upper case."""

    name: str
    value: LiteralNode


@dataclass(frozen=True, slots=True)
class ColumnDefinition(Node):
    """A column of CREATE.

    Attributes:
        header: The name of the record header that a HEADER column reads.
    """

    name: str
    type: TypeNode
    role: ColumnRole = "VALUE"
    header: str | None = None


@dataclass(frozen=True, slots=True)
class CreateSource(Node):
    """``CREATE STREAM`` or ``CREATE TABLE`` over a topic.

    Attributes:
        columns: Empty if they come from a schema registry.
        read_only: Whether it is a SOURCE stream or table.
    """

    kind: SourceKind
    name: str
    columns: tuple[ColumnDefinition, ...] = ()
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class CreateAs(Node):
    """``CREATE STREAM ... AS SELECT`` or ``CREATE TABLE ... AS SELECT``."""

    kind: SourceKind
    name: str
    query: Query
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class InsertInto(Node):
    """``INSERT INTO ... SELECT``."""

    name: str
    query: Query
    properties: tuple[Property, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertValues(Node):
    """``INSERT INTO ... VALUES``; no columns means all, in their order.

    Attributes:
        places: Where the names of the columns stand.
    """

    name: str
    columns: tuple[str, ...]
    values: tuple[Expression, ...]
    places: tuple[TextPosition, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DropSource(Node):
    """``DROP STREAM`` or ``DROP TABLE``."""

    kind: SourceKind
    name: str
    if_exists: bool = False
    delete_topic: bool = False


@dataclass(frozen=True, slots=True)
class AddedColumn(Node):
    """``ADD COLUMN name type``."""

    name: str
    type: TypeNode


@dataclass(frozen=True, slots=True)
class AlterSource(Node):
    """``ALTER STREAM`` or ``ALTER TABLE``."""

    kind: SourceKind
    name: str
    columns: tuple[AddedColumn, ...]


@dataclass(frozen=True, slots=True)
class AlterSystem(Node):
    """``ALTER SYSTEM 'property' = 'value'``."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class CreateType(Node):
    """``CREATE TYPE name AS type``."""

    name: str
    type: TypeNode
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropType(Node):
    """``DROP TYPE``."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateConnector(Node):
    """``CREATE SOURCE CONNECTOR`` or ``CREATE SINK CONNECTOR``."""

    kind: Literal["SOURCE", "SINK"]
    name: str
    properties: tuple[Property, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropConnector(Node):
    """``DROP CONNECTOR``."""

    name: str
    if_exists: bool = False


Definition = (
    CreateSource
    | CreateAs
    | InsertInto
    | InsertValues
    | DropSource
    | AlterSource
    | AlterSystem
    | CreateType
    | DropType
    | CreateConnector
    | DropConnector
)


# Statements that ask, steer and check

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
