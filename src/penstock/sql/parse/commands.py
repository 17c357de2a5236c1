"""The grammar of the statements that ask, steer and check."""

from __future__ import annotations

from typing import cast

from penstock.sql.parse.command_nodes import (
    AssertSchema,
    AssertSource,
    AssertTombstone,
    AssertTopic,
    AssertValues,
    Command,
    Define,
    Describe,
    DescribeAll,
    Listed,
    Print,
    RunScript,
    SetProperty,
    Show,
    Steer,
    Undefine,
    UnsetProperty,
)
from penstock.sql.parse.cursor import Cursor
from penstock.sql.parse.definitions import source_kind
from penstock.sql.parse.elements import columns, names, properties, topic, values
from penstock.sql.parse.query_nodes import Duration
from penstock.sql.parse.tokens import TextPosition, TokenKind
from penstock.sql.parse.windows import duration

__all__ = [
    "assertion",
    "define",
    "describe",
    "print_topic",
    "run_script",
    "set_property",
    "show",
    "steer",
    "test_assertion",
]

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
