"""SELECT in a session: rows at once without EMIT, a stream of changes with EMIT CHANGES."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.sql.parse.query_nodes import Query
from penstock.sql.queries.answer import Answer, answer
from penstock.sql.queries.host import QueryHost
from penstock.sql.queries.plans import PullPlan
from penstock.sql.results import Rows, StatementResult, Stream

__all__ = ["select"]


def select(query: Query, text: str, host: QueryHost) -> StatementResult:
    """Answer a SELECT: rows at once without EMIT, a stream of changes with EMIT CHANGES.

    Args:
        query: The parsed statement.
        text: Its text.
        host: The session.

    Raises:
        SqlError: It cannot be answered.
        StateError: The query that keeps its table does not run.
    """
    reply = answer(query, text, host)
    columns = tuple(column.name for column in reply.results.columns)
    types = tuple(str(column.type) for column in reply.results.columns)
    if reply.runs_on:
        return Stream(columns, types, _values(reply), reply.stop, statement=text)
    rows = tuple(row.values for row in reply.rows() if row is not None)
    return Rows(columns, types, rows, "" if rows else _why_none(reply, host), statement=text)


def _why_none(reply: Answer, host: QueryHost) -> str:
    """Why a table has no rows: the query that keeps it has none yet; empty if it runs, or the table is a topic."""
    writer = reply.plan.writer if isinstance(reply.plan, PullPlan) else None
    running = None if writer is None else host.queries.get(writer.id)
    if writer is None or running is None:
        return ""
    if running.state == "PAUSED":
        return f"{writer.id} is paused"
    if running.state == "ERROR":
        return f"{writer.id} has failed: EXPLAIN {writer.id}; shows why"
    return f"{writer.id} is still starting" if reply.unwritten or running.state == "REBALANCING" else ""


def _values(reply: Answer) -> Iterator[tuple[Any, ...] | None]:
    for row in reply.rows():
        yield None if row is None else row.values
