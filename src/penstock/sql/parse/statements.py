"""The grammar of statements: the first word says which rule reads the rest."""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.nearest_name import did_you_mean
from penstock.sql.parse import commands
from penstock.sql.parse.command_nodes import Explain, Statement
from penstock.sql.parse.cursor import Cursor
from penstock.sql.parse.definitions import alter, create, drop, insert
from penstock.sql.parse.dialects import OTHER_STATEMENTS
from penstock.sql.parse.queries import query
from penstock.sql.parse.syntax_errors import excerpt, listed
from penstock.sql.parse.tokens import Kind

__all__ = ["statement", "test_statement"]

Rule = Callable[[Cursor], Statement]


def statement(cursor: Cursor) -> Statement:
    """Read a statement."""
    return _read(cursor, _RULES)


def test_statement(cursor: Cursor) -> Statement:
    """Read a statement as prompts and test files have it: with RUN SCRIPT and all kinds of ASSERT."""
    return _read(cursor, _TEST_RULES)


def _read(cursor: Cursor, rules: dict[str, Rule]) -> Statement:
    rule = rules.get(cursor.token.key)
    if rule is None:
        if cursor.token.kind is Kind.END:
            cursor.note("a statement")
            raise cursor.unexpected()
        word = cursor.source(cursor.token)
        hint = OTHER_STATEMENTS.get(word.upper()) or did_you_mean(word, rules)
        hint = hint or f"A statement begins with {listed(rules)}."
        raise cursor.refused(cursor.token.at, f"unknown statement {excerpt(word)}", hint)
    return rule(cursor)


def _explain(cursor: Cursor) -> Statement:
    at = cursor.expect("EXPLAIN").at
    if cursor.following() == Kind.END.value and cursor.at_name():
        return Explain(cursor.name(), at=at)
    cursor.enter()
    found = Explain(statement(cursor), at=at)
    cursor.leave()
    return found


_RULES: dict[str, Rule] = {
    "CREATE": create,
    "SELECT": query,
    "WITH": query,
    "INSERT": insert,
    "DROP": drop,
    "ALTER": alter,
    "TERMINATE": commands.steer,
    "PAUSE": commands.steer,
    "RESUME": commands.steer,
    "SHOW": commands.show,
    "LIST": commands.show,
    "DESCRIBE": commands.describe,
    "EXPLAIN": _explain,
    "PRINT": commands.print_topic,
    "SET": commands.set_property,
    "UNSET": commands.set_property,
    "DEFINE": commands.define,
    "UNDEFINE": commands.define,
    "ASSERT": commands.assertion,
}
_TEST_RULES: dict[str, Rule] = {**_RULES, "ASSERT": commands.test_assertion, "RUN": commands.run_script}
