"""Statements without a prompt: of -e, or of the standard input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.output import console
from penstock.cli.sql.render import ResultRenderer
from penstock.sql.parse import parse_script
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.statement_nodes import Query
from penstock.sql.results import QueryStarted, StatementResult, Stream

if TYPE_CHECKING:
    from penstock.sql.session import SqlSession

__all__ = ["run_statements"]


def run_statements(session: SqlSession, text: str, *, as_json: bool) -> None:
    """Run statements and print their results.

    Before a SELECT or PRINT, and at the end, the queries that the statements have made process all records that exist.

    Args:
        session: A session that does not run queries by itself.
        text: The statements.
        as_json: Whether to print a line of JSON for each result or row.
    """
    renderer = ResultRenderer(console(), as_json=as_json)
    behind = False
    for number, parsed in enumerate(parse_script(text, session.catalog.variables, tests=True)):
        del number
        if behind and isinstance(parsed.statement, Query | s.Print):
            session.catch_up()
            behind = False
        for result in session.execute(f"{' ' * (parsed.at.column - 1)}{parsed.text};"):
            behind = behind or isinstance(result, QueryStarted)
            _show(renderer, result)
    if behind:
        session.catch_up()


def _show(renderer: ResultRenderer, result: StatementResult) -> None:
    if not isinstance(result, Stream):
        renderer.show(result)
        return
    try:
        renderer.show(result)
    finally:
        result.close()
