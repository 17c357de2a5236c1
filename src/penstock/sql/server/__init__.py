"""The REST interface of ksqlDB over a session: its endpoints, its documents, its error codes.

A walk along one request: `http` has the routes and runs their work in threads, `service` does the work over a
`SqlSession`, `documents` makes the answers of statements, `rows` those of queries, `inserting` takes rows, `problems`
makes the documents of errors.
"""

from __future__ import annotations

from penstock.sql.server.http import application, server
from penstock.sql.server.service import SqlService

__all__ = ["SqlService", "application", "server"]
