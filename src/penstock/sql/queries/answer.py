"""SELECT in a session: rows at once from committed state or the log, or a stream of changes."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from penstock.log.base import TopicLog, TopicPartition
from penstock.runtime.rows import RawRecord, headers_of
from penstock.serde.bound_serdes import bound, configured
from penstock.serde.windowed import Window, Windowed
from penstock.sql.analyse import QueryPlan, refusal
from penstock.sql.analyse.reads import read
from penstock.sql.catalog import Catalog, Source
from penstock.sql.compile import source_serdes
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.parse.statement_nodes import NamedSource, Query
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.queries.analyse import plan_query
from penstock.sql.queries.host import MaterializedRow, QueryHost, SqlStoreAccess
from penstock.sql.queries.plans import PullPlan, PushPlan, ResultRow, Results
from penstock.sql.queries.pull import TableRows, pulled
from penstock.sql.queries.push import SETTINGS, TransientTask, rows_of_records
from penstock.sql.results import Rows, StatementResult, Stream

__all__ = ["Answer", "LogRecords", "answer", "select", "source_rows"]


def source_rows(source: Source, records: Iterable[RawRecord], settings: Mapping[str, Any]) -> Iterator[MaterializedRow]:
    """Yield the newest row of each key of a table's topic, in the order of the keys' bytes, as a store has them.

    Args:
        source: The table.
        records: All records of its topic.
        settings: Settings of an application, such as the URL of a schema registry.
    """
    step = read(NamedSource(source.name), Catalog({source.name: source}))
    indexes = {column.name: index for index, column in enumerate(source.keys)}
    origins = tuple(
        indexes.get(field.name) if field.role == "KEY" else field.name if field.role == "BOUND" else None
        for field in step.fields
    )
    plan = PushPlan(id=source.name, root=step, columns=source.columns, origins=origins, reads=(source,))
    newest: dict[bytes | None, MaterializedRow] = {}
    keys = bound(configured(source_serdes(source)[0], settings), source.topic, "key")
    with TransientTask(plan, settings) as task:
        for record in records:
            for row in task.feed(record):
                stored = _stored(source, row)
                data = keys.serialize(stored.key)
                if row.tombstone:
                    newest.pop(data, None)
                else:
                    newest[data] = stored
    yield from (row for _, row in sorted(newest.items()))


def _stored(source: Source, row: ResultRow) -> MaterializedRow:
    """Return a row of a source's columns, time, partition, offset and bounds as the entry of a store."""
    width = len(source.columns)
    pairs = list(zip(source.columns, row.values, strict=False))
    key: Any = tuple(value for column, value in pairs if column.is_key)
    if source.window is not None:
        key = Windowed(key, Window(*row.values[width + 3 : width + 5]))
    return MaterializedRow(key, tuple(value for column, value in pairs if not column.is_key), row.values[width] or 0)


BATCH = 2_000  # records of a partition in one fetch


class Answer:
    """The result of a query, whose rows may go on to come.

    Attributes:
        plan: The plan of the query.
        results: Columns and rows; of a push query `rows` below has them.
    """

    def __init__(
        self,
        plan: PullPlan | PushPlan,
        results: Results,
        rows: Iterator[ResultRow | None],
        stop: Callable[[], None],
        stores: SqlStoreAccess | None = None,
    ) -> None:
        self.plan = plan
        self.results = results
        self._rows = rows
        self._stop = stop
        self._stores = stores

    @property
    def unwritten(self) -> bool:
        """Whether its table had no committed state when its rows were read."""
        return self._stores is not None and self._stores.unwritten

    @property
    def query_id(self) -> str:
        """The id of the query."""
        return self.results.query_id

    @property
    def runs_on(self) -> bool:
        """Whether it ends only at its limit, or when it is stopped."""
        return isinstance(self.plan, PushPlan) and self.plan.until == "never"

    def rows(self) -> Iterator[ResultRow | None]:
        """Return the rows; None whenever there is none for a while."""
        return self._rows

    def stop(self) -> None:
        """End the rows; from any thread, and more than once."""
        self._stop()


def answer(query: Query, text: str, host: QueryHost, settings: Mapping[str, str] | None = None) -> Answer:
    """Plan and start a query.

    Args:
        query: The parsed query.
        text: Its text.
        host: The session.
        settings: Settings for this query alone, over those of the session.

    Raises:
        SqlError: It cannot be run.
        StateError: The state of the query that keeps its table cannot be read.
    """
    catalog = host.catalog.copy()
    catalog.settings.update(settings or {})
    catalog.query_count = secrets.randbelow(10**12)  # ids of transient queries are of no order, and of no journal
    plan = plan_query(query, catalog, text)
    if isinstance(plan, PushPlan):
        return _followed(plan, host, query.at)
    errors = EvaluationErrors()
    stores = None if plan.writer is None else _stores(plan.writer, host)
    if plan.writer is None or stores is None:
        rows = _topic_rows(plan, host, query.at)
    else:
        rows = TableRows(plan.writer, stores, errors=errors).rows(plan.lookup, plan.starts)
    results = pulled(plan, rows, f"query_{time.time_ns()}", errors)
    return Answer(plan, results, results.rows, lambda: None, stores)


def _stores(writer: QueryPlan, host: QueryHost) -> SqlStoreAccess:
    running = host.queries.get(writer.id)
    app = None if running is None else running.app
    return SqlStoreAccess(app.query if app is not None else partial(host.committed.query, writer))


def _topic_rows(plan: PullPlan, host: QueryHost, at: TextPosition) -> Iterator[MaterializedRow]:
    _check_topics((plan.source.topic,), host, at)
    records = LogRecords(host.log, (plan.source.topic,), "earliest", "now").records()
    settings = _settings(host, plan.source.name, {})
    return source_rows(plan.source, (record for record in records if record is not None), settings)


def _followed(plan: PushPlan, host: QueryHost, at: TextPosition) -> Answer:
    _check_topics(plan.topics, host, at)
    latest = plan.until == "never" and dict(plan.settings).get("auto.offset.reset", "latest").lower() != "earliest"
    source = LogRecords(host.log, plan.topics, "latest" if latest else "earliest", plan.until)
    results = Results(plan.columns, iter(()), plan.id)
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        source.stop()

    rows = rows_of_records(plan, source.records(), _settings(host, plan.id, dict(plan.settings)), results)
    return Answer(plan, results, rows, stop)


def _settings(host: QueryHost, name: str, settings: Mapping[str, str]) -> dict[str, Any]:
    return {**host.app_settings(name, settings), **SETTINGS}


def _check_topics(topics: tuple[str, ...], host: QueryHost, at: TextPosition) -> None:
    names = {topic.name for topic in host.log.topics()}
    missing = [topic for topic in topics if topic not in names]
    if missing:
        raise refusal(at, f"The topic {missing[0]} does not exist.", "It is made with the first record, or by hand.")


class LogRecords:
    """The records of some topics, in the order of Kafka Streams: the partition whose next record is oldest goes first.

    Where reading begins and, for a query that ends, where it ends is fixed when this is made.

    Args:
        log: The log.
        topics: The topics, which exist.
        start: Whether to begin with the oldest records or with those written from now on: ``auto.offset.reset``.
        until: Whether to end where the topics end now.
    """

    def __init__(
        self, log: TopicLog, topics: Sequence[str], start: Literal["earliest", "latest"], until: Literal["never", "now"]
    ) -> None:
        self._log = log
        self._until = until
        ends = log.end_offsets(topics)
        self._positions = dict(ends) if start == "latest" else log.beginning_offsets(topics)
        self._ends = ends
        self._waiting: dict[TopicPartition, deque[RawRecord]] = {tp: deque() for tp in ends}
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the records; from any thread."""
        self._stopped.set()

    def records(self, wait_s: float = 0.2) -> Iterator[RawRecord | None]:
        """Yield records; None whenever there is none for a while.

        Args:
            wait_s: The longest wait for a new record, in seconds.
        """
        while not self._stopped.is_set():
            self._fill()
            ready = [(queue[0].timestamp, tp) for tp, queue in self._waiting.items() if queue]
            if ready:
                yield self._waiting[min(ready)[1]].popleft()
                continue
            if self._until == "now":
                return
            yield None
            self._ends = self._log.wait_for_data(self._positions, wait_s)

    def _fill(self) -> None:
        for tp, queue in self._waiting.items():
            while not queue and self._positions[tp] < self._ends[tp]:
                fetched = self._log.read(tp.topic, tp.partition, self._positions[tp], BATCH)
                if fetched.next_offset <= self._positions[tp]:
                    break  # nothing that can be read yet
                self._positions[tp] = fetched.next_offset
                batch = fetched.records
                headers = headers_of(batch.column("headers"))
                columns = (batch.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value"))
                for number, (offset, timestamp, key, value) in enumerate(zip(*columns, strict=True)):
                    if self._until == "never" or offset < self._ends[tp]:
                        own_headers = headers[number] if headers else ()
                        queue.append(RawRecord(tp.topic, offset, timestamp, key, value, own_headers, tp.partition))


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
    """Return why a table has no rows: its query has none yet; empty if that runs, or the table is a topic."""
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
