"""The place at which SELECT statements are answered."""

from __future__ import annotations

from penstock.sql.analyse import refusal
from penstock.sql.parse.query_nodes import Query
from penstock.sql.queries.host import QueryHost
from penstock.sql.results import StatementResult

__all__ = ["select"]


def select(query: Query, text: str, host: QueryHost) -> StatementResult:
    """Answer a SELECT: rows at once without EMIT, a stream of changes with EMIT CHANGES.

    Args:
        query: The parsed statement.
        text: Its text.
        host: The session.

    Raises:
        SqlError: It cannot be answered.
    """
    del text, host
    raise refusal(query.at, "SELECT by itself cannot be run here yet", "CREATE STREAM ... AS SELECT writes a topic.")
