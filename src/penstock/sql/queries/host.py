"""What a query may use of the session that it is asked in, and access to the state of persistent queries.

`StoreAccess` is all that pull queries ask for. `SqlStoreAccess` has it through interactive queries, which a test driver
and a running application answer alike: of its stores now the one, of committed state the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.api.builder import StreamsBuilder
from penstock.config import StreamsConfig
from penstock.errors import StateError
from penstock.log.base import TopicLog
from penstock.query import (
    RangeQuery,
    StateQueryRequest,
    StateQueryResult,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.query.execute import run_query
from penstock.serde.windowed import Window, Windowed
from penstock.sql.analyse import QueryPlan
from penstock.sql.catalog import Catalog
from penstock.sql.compile import compile_query

if TYPE_CHECKING:
    from penstock.query.source import CommittedStores

__all__ = [
    "FOREVER",
    "CommittedQueries",
    "MaterializedRow",
    "QueryHost",
    "RunningQuery",
    "SqlStoreAccess",
    "StoreAccess",
]

FOREVER = 2**63 - 1  # milliseconds


class MaterializedRow(NamedTuple):
    """An entry of a store: the key (`Windowed` where it has windows), the value, its time in milliseconds."""

    key: Any
    value: Any
    timestamp: int


class StoreAccess(Protocol):
    """Read access to stores by their names; each call reads one state of the store."""

    def get(self, store: str, key: Any) -> Iterator[MaterializedRow]:
        """Return the entry of a key of a store without windows; nothing if there is none."""
        ...

    def range(self, store: str, lower: Any, upper: Any) -> Iterator[MaterializedRow]:
        """Return the entries from one key to another, both included, by the bytes of keys; None is open."""
        ...

    def windows(self, store: str, key: Any, starts: tuple[int, int], size_ms: int) -> Iterator[MaterializedRow]:
        """Return the windows that start in a range of times, both included; of all keys if the key is None."""
        ...

    def sessions(self, store: str, key: Any) -> Iterator[MaterializedRow]:
        """Return the sessions of a key, or of all keys if it is None."""
        ...


class SqlStoreAccess:
    """`StoreAccess` by interactive queries.

    Args:
        query: ``KafkaStreams.query`` or ``TopologyTestDriver.query``.

    Attributes:
        unwritten: Whether a store has been asked that has no committed state yet.
    """

    def __init__(self, query: Callable[[StateQueryRequest], StateQueryResult]) -> None:
        self._query = query
        self.unwritten = False

    def get(self, store: str, key: Any) -> Iterator[MaterializedRow]:
        for entry in self._results(store, TimestampedKeyQuery(key)):
            yield MaterializedRow(key, entry.value, entry.timestamp)

    def range(self, store: str, lower: Any, upper: Any) -> Iterator[MaterializedRow]:
        query: RangeQuery = TimestampedRangeQuery(lower, upper)
        for entries in self._results(store, query):
            for key, entry in entries:
                yield MaterializedRow(key, entry.value, entry.timestamp)

    def windows(self, store: str, key: Any, starts: tuple[int, int], size_ms: int) -> Iterator[MaterializedRow]:
        if key is None:
            for entries in self._results(store, WindowRangeQuery(None, *starts)):
                for windowed, entry in entries:
                    yield MaterializedRow(windowed, entry.value, entry.timestamp)
            return
        for entries in self._results(store, WindowKeyQuery(key, *starts)):
            for start, entry in entries:
                yield MaterializedRow(Windowed(key, Window(start, start + size_ms)), entry.value, entry.timestamp)

    def sessions(self, store: str, key: Any) -> Iterator[MaterializedRow]:
        for entries in self._results(store, WindowRangeQuery(key)):
            for windowed, aggregate in entries:
                yield MaterializedRow(windowed, aggregate, windowed.window.end)

    def _results(self, store: str, query: Any) -> Iterator[Any]:
        answer = self._query(StateQueryRequest(store, query))
        results = [*answer.partition_results.values()]
        if answer.global_result is not None:
            results.append(answer.global_result)
        for result in results:
            if result.failure_reason is not None and result.failure_reason.value == "NOT_PRESENT":
                self.unwritten = True  # no batch has been committed yet
                continue
            if result.failure_reason is not None:
                raise StateError(
                    f"store {store!r} cannot be read: {result.failure_message}",
                    hint=f"The reason is {result.failure_reason.value}.",
                    store=store,
                )
            if result.result is not None:
                yield result.result


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
        from penstock.engines.committed_state.opening import open_committed

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
