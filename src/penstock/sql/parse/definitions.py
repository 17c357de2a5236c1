"""The grammar of CREATE, INSERT, DROP and ALTER."""

from __future__ import annotations

from penstock.sql.parse.cursor import Cursor
from penstock.sql.parse.elements import columns, if_exists, if_not_exists, names, properties, values
from penstock.sql.parse.queries import query
from penstock.sql.parse.statement_nodes import (
    AddedColumn,
    AlterSource,
    AlterSystem,
    CreateAs,
    CreateConnector,
    CreateSource,
    CreateType,
    Definition,
    DropConnector,
    DropSource,
    DropType,
    InsertInto,
    InsertValues,
    SourceKind,
)
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.parse.types import type_node

__all__ = ["alter", "create", "drop", "insert"]


def create(cursor: Cursor) -> Definition:
    """Read CREATE and what follows it."""
    at = cursor.expect("CREATE").at
    or_replace = cursor.accept("OR")
    if or_replace:
        cursor.expect("REPLACE")
    elif cursor.accept("TYPE"):
        return _create_type(cursor, at)
    elif cursor.accept("SINK"):
        return _create_connector(cursor, at, sink=True)
    read_only = cursor.accept("SOURCE")
    if read_only and not or_replace and cursor.at("CONNECTOR"):
        return _create_connector(cursor, at, sink=False)
    kind = source_kind(cursor)
    missing = if_not_exists(cursor)
    name = cursor.name()
    if cursor.at("("):
        column_definitions = columns(cursor, kind)
        return CreateSource(kind, name, column_definitions, properties(cursor), or_replace, missing, read_only, at=at)
    with_clause = properties(cursor)
    if not read_only and cursor.accept("AS"):
        return CreateAs(kind, name, query(cursor), with_clause, or_replace, missing, at=at)
    if read_only and cursor.token.key == "AS":
        hint = f"Leave out SOURCE, or name a topic: CREATE SOURCE {kind} {name} (...) WITH (KAFKA_TOPIC = '...')."
        raise cursor.refused(cursor.token.at, "a SOURCE stream or table reads a topic and has no query", hint)
    return CreateSource(kind, name, (), with_clause, or_replace, missing, read_only, at=at)


def source_kind(cursor: Cursor) -> SourceKind:
    """Read STREAM or TABLE."""
    return "STREAM" if cursor.one_of("STREAM", "TABLE") == "STREAM" else "TABLE"


def _create_type(cursor: Cursor, at: TextPosition) -> CreateType:
    missing = if_not_exists(cursor)
    name = cursor.name()
    cursor.expect("AS")
    return CreateType(name, type_node(cursor), missing, at=at)


def _create_connector(cursor: Cursor, at: TextPosition, *, sink: bool) -> CreateConnector:
    cursor.expect("CONNECTOR")
    missing = if_not_exists(cursor)
    name = cursor.name()
    if not cursor.at("WITH"):
        raise cursor.unexpected()
    return CreateConnector("SINK" if sink else "SOURCE", name, properties(cursor), missing, at=at)


def insert(cursor: Cursor) -> Definition:
    """Read INSERT and what follows it."""
    at = cursor.expect("INSERT").at
    cursor.expect("INTO")
    name = cursor.name()
    begin = cursor.index
    listed = names(cursor) if cursor.at("(") else ()
    places = tuple(token.at for token in cursor.tokens[begin + 1 : cursor.index : 2])
    if cursor.accept("VALUES"):
        return InsertValues(name, listed, values(cursor), places, at=at)
    if listed:
        raise cursor.unexpected()
    # A query may begin with WITH too: that of the statement has a bracket.
    with_clause = properties(cursor) if cursor.following() == "(" else ()
    return InsertInto(name, query(cursor), with_clause, at=at)


def drop(cursor: Cursor) -> Definition:
    """Read DROP and what follows it."""
    at = cursor.expect("DROP").at
    if cursor.accept("TYPE"):
        there = if_exists(cursor)
        return DropType(cursor.name(), there, at=at)
    if cursor.accept("CONNECTOR"):
        there = if_exists(cursor)
        return DropConnector(cursor.name(), there, at=at)
    kind = source_kind(cursor)
    there = if_exists(cursor)
    name = cursor.name()
    delete = cursor.accept("DELETE")
    if delete:
        cursor.expect("TOPIC")
    return DropSource(kind, name, there, delete, at=at)


def alter(cursor: Cursor) -> Definition:
    """Read ALTER and what follows it."""
    at = cursor.expect("ALTER").at
    if cursor.accept("SYSTEM"):
        name = cursor.string()
        cursor.expect("=")
        return AlterSystem(name, cursor.string(), at=at)
    kind = source_kind(cursor)
    name = cursor.name()
    added = [_added(cursor)]
    while cursor.accept(","):
        added.append(_added(cursor))
    return AlterSource(kind, name, tuple(added), at=at)


def _added(cursor: Cursor) -> AddedColumn:
    at = cursor.expect("ADD").at
    if cursor.following(2) not in (",", "(", "the end of the text"):
        cursor.accept("COLUMN")  # else it is the name of the column
    return AddedColumn(cursor.name(), type_node(cursor), at=at)
