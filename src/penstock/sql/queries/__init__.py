"""SELECT without CREATE or INSERT: pull and push queries, which a session passes on to `select`."""

from __future__ import annotations

from penstock.sql.queries.host import QueryHost, RunningQuery
from penstock.sql.queries.select import select

__all__ = ["QueryHost", "RunningQuery", "select"]
