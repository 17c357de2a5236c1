"""What a query may use of the session that it is asked in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from penstock.log.base import TopicLog
from penstock.sql.analyse import QueryPlan
from penstock.sql.catalog import Catalog
from penstock.sql.queries.committed import CommittedQueries

__all__ = ["QueryHost", "RunningQuery"]


class RunningQuery(Protocol):
    """A persistent query of a session."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def plan(self) -> QueryPlan:
        """Its logical plan."""
        ...

    @property
    def app(self) -> Any:
        """Its application, a ``KafkaStreams``; None before it has been started."""
        ...

    @property
    def state(self) -> str:
        """``RUNNING``, ``PAUSED``, ``ERROR`` or another state of an application."""
        ...


class QueryHost(Protocol):
    """A session, as queries see it."""

    @property
    def catalog(self) -> Catalog:
        """Streams, tables, types, settings."""
        ...

    @property
    def log(self) -> TopicLog:
        """The topic log."""
        ...

    @property
    def queries(self) -> Mapping[str, RunningQuery]:
        """The persistent queries by id."""
        ...

    @property
    def committed(self) -> CommittedQueries:
        """The committed state of queries that do not run in this process."""
        ...

    def app_settings(self, query_id: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings of the application of a query.

        Those of the session, then those of SET (``ksql.streams.``).
        """
        ...
