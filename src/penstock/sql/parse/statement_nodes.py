"""Statements that make, change and fill streams, tables, types and connectors; for others see `command_nodes`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penstock.sql.parse.expression_nodes import Expression
from penstock.sql.parse.literals import Literal as LiteralNode
from penstock.sql.parse.nodes import Node
from penstock.sql.parse.query_nodes import Query
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.parse.type_nodes import TypeNode

__all__ = [
    "AddedColumn",
    "AlterSource",
    "AlterSystem",
    "ColumnDefinition",
    "ColumnRole",
    "CreateAs",
    "CreateConnector",
    "CreateSource",
    "CreateType",
    "Definition",
    "DropConnector",
    "DropSource",
    "DropType",
    "InsertInto",
    "InsertValues",
    "Property",
    "SourceKind",
]

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
