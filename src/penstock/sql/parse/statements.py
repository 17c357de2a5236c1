"""The grammar of statements: those that define and fill, then those that ask, steer and check."""

from __future__ import annotations

from typing import cast

from penstock.sql.parse.expression_nodes import Expression
from penstock.sql.parse.expressions import expressions, literal, type_node
from penstock.sql.parse.queries import duration, query
from penstock.sql.parse.statement_nodes import (
    AddedColumn,
    AlterSource,
    AlterSystem,
    AssertSchema,
    AssertSource,
    AssertTombstone,
    AssertTopic,
    AssertValues,
    ColumnDefinition,
    ColumnRole,
    Command,
    CreateAs,
    CreateConnector,
    CreateSource,
    CreateType,
    Define,
    Definition,
    Describe,
    DescribeAll,
    DropConnector,
    DropSource,
    DropType,
    Duration,
    InsertInto,
    InsertValues,
    Listed,
    Print,
    Property,
    RunScript,
    SetProperty,
    Show,
    SourceKind,
    Steer,
    Undefine,
    UnsetProperty,
)
from penstock.sql.parse.tokens import Cursor, TextPosition, TokenKind, quoted

__all__ = [
    "alter",
    "assertion",
    "create",
    "define",
    "describe",
    "drop",
    "insert",
    "print_topic",
    "run_script",
    "set_property",
    "show",
    "steer",
    "test_assertion",
]


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


_LISTED = ("STREAMS", "TABLES", "TOPICS", "QUERIES", "FUNCTIONS", "PROPERTIES", "TYPES", "VARIABLES", "CONNECTORS")
_EXTENDED = frozenset({"STREAMS", "TABLES", "TOPICS", "QUERIES"})


def steer(cursor: Cursor) -> Command:
    """Read TERMINATE, PAUSE or RESUME and what follows it."""
    at = cursor.token.at
    action = cursor.one_of("TERMINATE", "PAUSE", "RESUME")
    query_id = None if cursor.accept("ALL") else cursor.name()
    if action == "TERMINATE":
        return Steer("TERMINATE", query_id, at=at)
    return Steer("PAUSE" if action == "PAUSE" else "RESUME", query_id, at=at)


def show(cursor: Cursor) -> Command:
    """Read SHOW or LIST and what follows it."""
    at = cursor.token.at
    cursor.one_of("SHOW", "LIST")
    if cursor.accept("ALL"):
        cursor.expect("TOPICS")
        return Show("TOPICS", cursor.accept("EXTENDED"), internal=True, at=at)
    if cursor.accept("CONNECTOR"):
        cursor.expect("PLUGINS")
        return Show("CONNECTOR PLUGINS", at=at)
    if cursor.accept("SOURCE"):
        cursor.expect("CONNECTORS")
        return Show("SOURCE CONNECTORS", at=at)
    if cursor.accept("SINK"):
        cursor.expect("CONNECTORS")
        return Show("SINK CONNECTORS", at=at)
    what = cast("Listed", cursor.one_of(*_LISTED))
    return Show(what, what in _EXTENDED and cursor.accept("EXTENDED"), at=at)


def describe(cursor: Cursor) -> Command:
    """Read DESCRIBE and what follows it."""
    at = cursor.expect("DESCRIBE").at
    if cursor.accept("STREAMS"):
        return DescribeAll("STREAMS", cursor.accept("EXTENDED"), at=at)
    alone = cursor.following() in (TokenKind.END.value, "EXTENDED")
    if alone and cursor.accept("TABLES"):
        return DescribeAll("TABLES", cursor.accept("EXTENDED"), at=at)
    if not alone and cursor.accept("FUNCTION"):
        return Describe("FUNCTION", cursor.name(), at=at)
    if not alone and cursor.accept("CONNECTOR"):
        return Describe("CONNECTOR", cursor.name(), at=at)
    name = cursor.name()
    return Describe("SOURCE", name, cursor.accept("EXTENDED"), at=at)


def print_topic(cursor: Cursor) -> Command:
    """Read PRINT and what follows it."""
    at = cursor.expect("PRINT").at
    name = topic(cursor)
    beginning = cursor.accept("FROM")
    if beginning:
        cursor.expect("BEGINNING")
    interval = cursor.whole_number() if cursor.accept("INTERVAL") or cursor.accept("SAMPLE") else None
    limit = cursor.whole_number() if cursor.accept("LIMIT") else None
    return Print(name, beginning, interval, limit, at=at)


def set_property(cursor: Cursor) -> Command:
    """Read SET or UNSET and what follows it."""
    at = cursor.token.at
    if cursor.one_of("SET", "UNSET") == "UNSET":
        return UnsetProperty(cursor.string(), at=at)
    name = cursor.string()
    cursor.expect("=")
    return SetProperty(name, cursor.string(), at=at)


def define(cursor: Cursor) -> Command:
    """Read DEFINE or UNDEFINE and what follows it."""
    at = cursor.token.at
    if cursor.one_of("DEFINE", "UNDEFINE") == "UNDEFINE":
        return Undefine(cursor.name(), at=at)
    name = cursor.name()
    cursor.expect("=")
    return Define(name, cursor.string(), at=at)


def run_script(cursor: Cursor) -> Command:
    """Read RUN SCRIPT and what follows it."""
    at = cursor.expect("RUN").at
    cursor.expect("SCRIPT")
    return RunScript(cursor.string(), at=at)


def assertion(cursor: Cursor) -> Command:
    """Read ASSERT and what follows it, as applications have it."""
    at = cursor.expect("ASSERT").at
    return _assert_there(cursor, at)


def test_assertion(cursor: Cursor) -> Command:
    """Read ASSERT and what follows it, as test files have it."""
    at = cursor.expect("ASSERT").at
    if cursor.accept("VALUES"):
        name = cursor.name()
        listed = names(cursor) if cursor.at("(") else ()
        cursor.expect("VALUES")
        return AssertValues(name, listed, values(cursor), at=at)
    if cursor.accept("NULL"):
        cursor.expect("VALUES")
        name = cursor.name()
        listed = names(cursor) if cursor.at("(") else ()
        cursor.expect("KEY")
        return AssertTombstone(name, listed, values(cursor), at=at)
    if cursor.at("STREAM") or cursor.at("TABLE"):
        kind = source_kind(cursor)
        name = cursor.name()
        return AssertSource(kind, name, columns(cursor, kind) if cursor.at("(") else (), properties(cursor), at=at)
    return _assert_there(cursor, at)


def _assert_there(cursor: Cursor, at: TextPosition) -> Command:
    exists = not cursor.accept("NOT")
    if not exists:
        cursor.expect("EXISTS")
    if cursor.accept("TOPIC"):
        name = topic(cursor)
        return AssertTopic(name, properties(cursor), _timeout(cursor), exists, at=at)
    cursor.expect("SCHEMA")
    subject = topic(cursor) if cursor.accept("SUBJECT") else None
    schema_id = cursor.whole_number() if cursor.accept("ID") else None
    if subject is None and schema_id is None:
        raise cursor.unexpected()
    return AssertSchema(subject, schema_id, _timeout(cursor), exists, at=at)


def _timeout(cursor: Cursor) -> Duration | None:
    return duration(cursor) if cursor.accept("TIMEOUT") else None
