"""Persistent queries as applications, all of a session in one Spark session."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.api.builder import StreamsBuilder
from penstock.base.log_lines import own_logger
from penstock.config import StreamsConfig
from penstock.engines.lifecycle import State
from penstock.errors import PenstockError
from penstock.sql.analyse import QueryPlan
from penstock.sql.compile import compile_query
from penstock.sql.session.session_settings import SessionSettings

if TYPE_CHECKING:
    from penstock.engines.kafka_streams import KafkaStreams
    from penstock.engines.spark.session import SparkApplication
    from penstock.topology.topology import Topology

__all__ = ["DROPPED", "QueryRunner", "SessionQuery", "topology_of"]

_log = own_logger(__name__)
STOP_MS = 30_000
SPARE_SLOTS = 256  # of a local Spark: each query has stream threads of its own, which keep theirs
RUNNING_DEFAULTS = {"num.stream.threads": 1}  # ksqlDB: 4, which share a process; here each is one
DROPPED = "dropped records"


def topology_of(plan: QueryPlan) -> Topology:
    """Return the topology of one query."""
    builder = StreamsBuilder()
    compile_query(plan, builder)
    return builder.build()


class SessionQuery:
    """A persistent query of a session: its plan, and the application that runs it.

    Attributes:
        plan: Its logical plan.
        app: Its application; None until it has been started, and while it is paused.
        paused: Whether PAUSE has stopped it.
        lock: Held while it is started or stopped.
    """

    def __init__(self, plan: QueryPlan) -> None:
        self.plan = plan
        self.app: KafkaStreams | None = None
        self.paused = False
        self.lock = threading.RLock()
        self._error: PenstockError | None = None
        self._counted: Counter[str] = Counter()

    @property
    def id(self) -> str:
        """Its id, such as ``CSAS_CLICKS_1``."""
        return self.plan.id

    @property
    def state(self) -> str:
        """``PAUSED``, ``ERROR``, ``CREATED``, or the state of its application."""
        if self.paused:
            return "PAUSED"
        if self.error is not None:
            return State.ERROR.value
        app = self.app
        return State.CREATED.value if app is None else app.state.value

    @property
    def error(self) -> PenstockError | None:
        """Why it failed; None while it has not."""
        app = self.app
        return self._error or (app.error if app is not None else None)

    @property
    def errors(self) -> Mapping[str, int]:
        """Function or column -> errors since this session began, in all workers; `DROPPED` -> records left out."""
        return dict(self._counted + self._of_app())

    def _of_app(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        app = self.app
        if app is None:
            return counts
        for metric in app.metrics.find("function-errors-total"):
            counts[metric.metric_name.tag("function") or ""] += int(metric.metric_value())
        counts[DROPPED] += int(app.metrics.total("dropped-records-total"))
        return counts

    def ended(self) -> None:
        """Forget the application, which has ended; its errors stay counted."""
        self._counted += self._of_app()
        self.app = None

    def failed(self, error: PenstockError | None) -> None:
        """Note why it could not be started."""
        self._error = error


class QueryRunner:
    """The running queries of a session, by id.

    A query is started only while it is in `queries` and not paused, and a start and a stop of one query wait for each
    other: whoever stops it first takes it out of the list, or marks it as paused.

    Args:
        settings: The settings of the session.
        spark: The Spark session to run in; by default one is started with the first query and stopped at the end.
    """

    def __init__(self, settings: SessionSettings, spark: Any = None) -> None:
        self._settings = settings
        self._session = spark
        self._spark: SparkApplication | None = None
        self._starting = threading.Lock()
        self._closed = False
        self.queries: dict[str, SessionQuery] = {}

    def add(self, plan: QueryPlan, *, paused: bool = False) -> SessionQuery:
        """Add a query that is not started yet."""
        query = SessionQuery(plan)
        query.paused = paused
        self.queries[plan.id] = query
        return query

    def application(self, query: SessionQuery, defaults: Mapping[str, Any] = RUNNING_DEFAULTS) -> KafkaStreams:
        """Make the application of a query.

        Args:
            query: The query.
            defaults: What counts where neither the session nor the query sets it.

        Raises:
            PenstockError: Its topology or settings cannot be run.
        """
        from penstock.engines.kafka_streams import KafkaStreams

        settings = self._settings.app_settings(query.id, dict(query.plan.settings))
        config = StreamsConfig(settings).with_defaults(defaults)
        return KafkaStreams(topology_of(query.plan), config, session=self._session)

    def start(self, query: SessionQuery) -> None:
        """Start a query and return, unless it has been paused, terminated, replaced or started before.

        Raises:
            PenstockError: It cannot be started; `Query.error` has it too.
        """
        self._launch(query)

    def catch_up(self, *, most_rounds: int = 20) -> None:
        """Run all queries until they have processed all records that exist now, those that they write included.

        Raises:
            PenstockError: A query failed.
        """
        before: Mapping[str, Any] | None = None
        for _ in range(most_rounds):
            for query in self._waiting():
                app = self._launch(query, until_latest=True)
                if app is None:
                    continue
                try:
                    app.wait()
                except PenstockError as error:
                    query.failed(error)
                    raise
                finally:
                    query.ended()
            ends = self._ends()
            if ends == before or not self._feeds_earlier():
                return
            before = ends

    def _feeds_earlier(self) -> bool:
        """Return whether a query reads what a later one writes, so that one round in their order is not enough."""
        plans = [query.plan for query in self._waiting()]
        return any(
            plan.target.topic in _topics(earlier) for index, plan in enumerate(plans) for earlier in plans[: index + 1]
        )

    def _ends(self) -> Mapping[str, Any]:
        from penstock.log.open import open_log

        topics = sorted({query.plan.target.topic for query in self._waiting()})
        with open_log(self._settings.log, self._settings.app) as log:
            return {f"{tp.topic}-{tp.partition}": end for tp, end in log.end_offsets(topics).items()}

    def _waiting(self) -> Iterator[SessionQuery]:
        return (query for query in list(self.queries.values()) if not query.paused)

    def _launch(self, query: SessionQuery, *, until_latest: bool = False) -> KafkaStreams | None:
        with query.lock, self._starting:
            if self._closed or query.paused or query.app is not None or self.queries.get(query.id) is not query:
                return None
            query.failed(None)
            try:
                self._start_spark()
                query.app = self.application(query, {} if until_latest else RUNNING_DEFAULTS)  # others wait, or run too
                query.app.start(until="latest" if until_latest else "stopped")
            except PenstockError as error:
                query.failed(error)
                query.ended()
                raise
            return query.app

    def _start_spark(self) -> None:
        if self._spark is not None:
            return
        from penstock.engines.spark.session import spark_for

        settings = {name: value for name, value in self._settings.app.items() if name.startswith("spark.")}
        settings = {"spark.scheduler.mode": "FAIR", **settings}
        self._spark = spark_for(settings, f"{self._settings.service}sql", "", session=self._session, spare=SPARE_SLOTS)

    def stop(self, query: SessionQuery) -> None:
        """Stop a query; its state stays."""
        with query.lock:
            if query.app is not None:
                if not query.app.close(STOP_MS):
                    _log.warning("query %s has not stopped within %d s", query.id, STOP_MS // 1000)
                query.ended()

    def remove(self, query_id: str) -> None:
        """Stop a query and delete its state and internal topics."""
        query = self.queries.pop(query_id, None)
        if query is None:
            return
        self.stop(query)
        try:
            self.application(query).reset()
        except PenstockError as error:
            _log.warning("the state of %s stays where it is: %s", query_id, error)

    def close(self) -> None:
        """Stop all queries, and Spark if it was started here; none is started afterwards."""
        self._closed = True
        for query in list(self.queries.values()):
            self.stop(query)
        with self._starting:
            if self._spark is not None:
                self._spark.release()
                self._spark = None


def _topics(plan: QueryPlan) -> set[str]:
    """Return the topics that a query reads."""
    from penstock.sql.analyse.plans import reads_of

    return {read.source.topic for read in reads_of(plan)}
