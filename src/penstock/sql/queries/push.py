"""Push queries: a transient topology in this process, whose results are rows and not records of a topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from penstock.api.builder import StreamsBuilder
from penstock.serde.windowed import Windowed
from penstock.sql.compile.queries import compile_results
from penstock.sql.functions.errors import EvaluationErrors
from penstock.sql.queries.ordering import ordered
from penstock.sql.queries.plans import COMPLETED, LIMIT_REACHED, PushPlan, ResultRow, Results
from penstock.testing import TopologyTestDriver
from penstock.testing.queues import RawRecord

__all__ = ["TransientTask", "results_of_records"]

SETTINGS = {"statestore.cache.max.bytes": 0, "deserialization.exception.handler": "continue"}


class TransientTask:
    """The topology of a push query as one task with its state in memory. Close it, or use it in ``with``.

    It is Penstock's production task, driven as the test driver drives it: record by record, in the order in which
    they are fed, with internal topics as queues.

    Args:
        plan: The query.
        settings: Settings of an application, such as the URL of a schema registry.
        errors: Counts the errors of the query's expressions.
    """

    def __init__(self, plan: PushPlan, settings: Mapping[str, Any], errors: EvaluationErrors | None = None) -> None:
        self.plan = plan
        self.errors = errors or EvaluationErrors(plan.id)
        self._found: deque[ResultRow] = deque()
        builder = StreamsBuilder()
        result = compile_results(plan.root, builder, self.errors)
        stream = result.to_stream() if plan.root.is_table else result
        stream.foreach(self._collect)
        topology = builder.build()
        self._internal = tuple(topology.internal_topics)
        self._driver = TopologyTestDriver(topology, {**SETTINGS, **settings})

    def _collect(self, key: Any, value: Any) -> None:
        if value is not None:
            self._found.append(ResultRow(value))
        elif self.plan.root.is_table:
            self._found.append(ResultRow(self._of_key(key), tombstone=True))

    def _of_key(self, key: Any) -> tuple[Any, ...]:
        bounds: dict[str, int] = {}
        if isinstance(key, Windowed):
            bounds = {"WINDOWSTART": key.window.start, "WINDOWEND": key.window.end}
            key = key.key
        return tuple(
            None if origin is None else bounds.get(origin) if isinstance(origin, str) else key[origin]
            for origin in self.plan.origins
        )

    def feed(self, record: RawRecord) -> Iterator[ResultRow]:
        """Process a record, and return the rows that it causes."""
        self._driver.pipe_record(record)
        for topic in self._internal:
            while self._driver.read_raw(topic) is not None:
                pass  # processed; kept for tests alone
        while self._found:
            yield self._found.popleft()

    def pass_time(self, milliseconds: int) -> Iterator[ResultRow]:
        """Advance the wall clock, and return the rows that this causes."""
        self._driver.advance_wall_clock_time(milliseconds)
        while self._found:
            yield self._found.popleft()

    def close(self) -> None:
        """Forget the state."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def results_of_records(plan: PushPlan, records: Iterable[RawRecord], settings: Mapping[str, Any]) -> Results:
    """Run a push query over records; it ends with them, or at its limit.

    Args:
        plan: The query.
        records: The records of its topics, in the order in which they are processed.
        settings: Settings of an application.
    """
    results = Results(plan.columns, iter(()), plan.id)
    results.rows = _rows(plan, records, settings, results)
    return results


def _rows(
    plan: PushPlan, records: Iterable[RawRecord], settings: Mapping[str, Any], results: Results
) -> Iterator[ResultRow]:
    limit, skipped = plan.limits.limit, plan.limits.offset
    if limit == 0:
        results.ended = LIMIT_REACHED
        return
    with TransientTask(plan, settings) as task:
        found = (row for record in records for row in task.feed(record))
        for row in ordered(found, plan.order, lambda row: row.values, task.errors):
            if skipped:
                skipped -= 1
                continue
            yield row
            limit = None if limit is None else limit - 1
            if limit == 0:
                results.ended = LIMIT_REACHED
                return
    results.ended = COMPLETED

