"""The REST interface of ksqlDB over a session: its endpoints, its documents, its error codes.

A walk along one request: `http` has the routes and runs their work in threads, also takes inserted rows, and writes the
rows of queries as text; `service` does the work over a `SqlSession`; `documents` makes the answers of statements, and
those of errors.
"""

from __future__ import annotations

from penstock.sql.server.http import application, server
from penstock.sql.server.service import SqlService

__all__ = ["SqlService", "application", "server"]
