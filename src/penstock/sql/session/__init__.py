"""Sessions: statements against a catalog that lasts, and the queries that run for them.

A walk along one statement: `session` parses and dispatches, `changing_statements`, `describing_statements` and
`topic_statements` do one family of statements each over a `workspace`; `journal` keeps the statements in the log,
`persistent_queries` runs queries as applications.
"""

from __future__ import annotations

from penstock.sql.session.persistent_queries import SessionQuery
from penstock.sql.session.session import SqlSession
from penstock.sql.session.session_settings import SessionSettings

__all__ = ["SessionQuery", "SessionSettings", "SqlSession"]
