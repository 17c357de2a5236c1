"""The grammar of parts that several statements have: columns, properties, lists of names and values."""

from __future__ import annotations

from penstock.sql.parse.cursor import Cursor
from penstock.sql.parse.expression_nodes import Expression
from penstock.sql.parse.expressions import expressions
from penstock.sql.parse.literals import literal
from penstock.sql.parse.statement_nodes import ColumnDefinition, ColumnRole, Property, SourceKind
from penstock.sql.parse.tokens import TokenKind, quoted
from penstock.sql.parse.types import type_node

__all__ = ["columns", "if_exists", "if_not_exists", "names", "properties", "topic", "values"]


def if_not_exists(cursor: Cursor) -> bool:
    """Read IF NOT EXISTS, if it is there."""
    if cursor.following() != "NOT" or not cursor.accept("IF"):
        return False
    cursor.expect("NOT")
    cursor.expect("EXISTS")
    return True


def if_exists(cursor: Cursor) -> bool:
    """Read IF EXISTS, if it is there."""
    return cursor.following() == "EXISTS" and cursor.accept("IF") and cursor.accept("EXISTS")


def columns(cursor: Cursor, kind: SourceKind) -> tuple[ColumnDefinition, ...]:
    """Read columns in brackets."""
    cursor.expect("(")
    definitions = [_column(cursor, kind)]
    while cursor.accept(","):
        definitions.append(_column(cursor, kind))
    cursor.expect(")")
    return tuple(definitions)


def _column(cursor: Cursor, kind: SourceKind) -> ColumnDefinition:
    at = cursor.token.at
    name = cursor.name()
    written = type_node(cursor)
    role: ColumnRole = "VALUE"
    header = None
    if cursor.accept("PRIMARY"):
        cursor.expect("KEY")
        role = "PRIMARY KEY"
    elif cursor.accept("KEY"):
        role = "KEY"
    elif cursor.accept("HEADERS"):
        role = "HEADERS"
    elif cursor.accept("HEADER"):
        role = "HEADER"
        cursor.expect("(")
        header = cursor.string()
        cursor.expect(")")
    wrong = {"STREAM": "PRIMARY KEY", "TABLE": "KEY"}[kind]
    if role == wrong:
        right = "KEY" if kind == "STREAM" else "PRIMARY KEY"
        raise cursor.refused(at, f"Column {quoted(name)} of a {kind.lower()} is a {wrong}", f"Write {right}.")
    return ColumnDefinition(name, written, role, header, at=at)


def properties(cursor: Cursor) -> tuple[Property, ...]:
    """Read WITH and its properties in brackets, if it is there."""
    if not cursor.accept("WITH"):
        return ()
    cursor.expect("(")
    if cursor.accept(")"):
        return ()
    clause = [_property(cursor)]
    while cursor.accept(","):
        clause.append(_property(cursor))
    cursor.expect(")")
    return tuple(clause)


def _property(cursor: Cursor) -> Property:
    at = cursor.token.at
    name = cursor.string() if cursor.at(TokenKind.STRING.value) else cursor.name()
    cursor.expect("=")
    return Property(name, literal(cursor), at=at)


def names(cursor: Cursor) -> tuple[str, ...]:
    """Read names in brackets."""
    cursor.expect("(")
    name_list = [cursor.name()]
    while cursor.accept(","):
        name_list.append(cursor.name())
    cursor.expect(")")
    return tuple(name_list)


def values(cursor: Cursor) -> tuple[Expression, ...]:
    """Read expressions in brackets."""
    cursor.expect("(")
    value_list = expressions(cursor)
    cursor.expect(")")
    return value_list


def topic(cursor: Cursor) -> str:
    """Read the name of a topic, which keeps its case without quotes too."""
    if cursor.at(TokenKind.STRING.value):
        return cursor.string()
    token = cursor.token
    name = cursor.name()
    return cursor.source(token) if token.kind is TokenKind.WORD else name
