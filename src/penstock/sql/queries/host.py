"""What a query may use of the session that it is asked in, and committed state of queries that others run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.api.builder import StreamsBuilder
from penstock.config import StreamsConfig
from penstock.errors import StateError
from penstock.log.base import TopicLog
from penstock.query import StateQueryRequest, StateQueryResult
from penstock.query.execute import run_query
from penstock.sql.analyse import QueryPlan
from penstock.sql.catalog import Catalog
from penstock.sql.compile import compile_query

if TYPE_CHECKING:
    from penstock.query.source import CommittedStores

__all__ = ["CommittedQueries", "QueryHost", "RunningQuery"]


class CommittedQueries:
    """Open committed states by the id of their query, kept for the next request; each sees what is committed by then.

    Args:
        app_settings: The settings of the application of a query, from its id and its own settings.
    """

    def __init__(self, app_settings: Callable[[str, Mapping[str, str]], dict[str, Any]]) -> None:
        self._app_settings = app_settings
        self._lock = threading.Lock()
        self._open: dict[str, tuple[QueryPlan, CommittedStores]] = {}

    def query(self, writer: QueryPlan, request: StateQueryRequest) -> StateQueryResult:
        """Answer a request from the state of the query that keeps a table.

        Raises:
            StateError: It has none yet.
        """
        state = self._state(writer)
        if request.store not in state.stores():
            self.forget(writer.id)
            raise StateError(
                f"the query {writer.id}, which keeps the table, has no committed state yet",
                hint="It has state as soon as it has run: see SHOW QUERIES.",
                store=request.store,
            )
        return run_query(state, request, is_active=False)

    def _state(self, writer: QueryPlan) -> CommittedStores:
        from penstock.engines.committed.opening import open_committed

        with self._lock:
            plan, state = self._open.get(writer.id, (None, None))
            if state is not None and plan is writer:
                return state
            if state is not None:  # of a query that has been replaced
                state.close()
            builder = StreamsBuilder()
            compile_query(writer, builder)
            config = StreamsConfig(self._app_settings(writer.id, dict(writer.settings)))
            state = open_committed(builder.build(), config)
            self._open[writer.id] = (writer, state)
            return state

    def forget(self, query_id: str) -> None:
        """Close the state of a query that has ended, or starts here."""
        with self._lock:
            _, state = self._open.pop(query_id, (None, None))
        if state is not None:
            state.close()

    def close(self) -> None:
        """Close all."""
        for query_id in list(self._open):
            self.forget(query_id)


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
