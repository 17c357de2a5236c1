"""Push queries: a transient topology in this process, whose results are rows and not records of a topic."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from penstock.api.builder import StreamsBuilder
from penstock.config import StreamsConfig
from penstock.runtime.aggregate.windows import EMIT_INTERVAL as OF_WINDOWS
from penstock.runtime.joins.unmatched import EMIT_INTERVAL as OF_JOINS
from penstock.runtime.local_task import LocalTask
from penstock.runtime.rows import RawRecord
from penstock.serde.windowed import Windowed
from penstock.sql.compile.queries import compile_results
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.queries.plans import COMPLETED, LIMIT_REACHED, PushPlan, ResultRow, Results, ordered

__all__ = ["TransientTask", "emit_intervals", "results_of_records", "rows_of_records"]


def emit_intervals(settings: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the intervals, in milliseconds, that a query's settings name.

    >>> emit_intervals([("ksql.streams.__emit.interval.ms.kstreams.windowed.aggregation__", "0"), ("a", "b")])
    {'__emit.interval.ms.kstreams.windowed.aggregation__': 0}
    """
    intervals = ((name.removeprefix("ksql.streams."), value) for name, value in settings)
    return {name: int(value) for name, value in intervals if name in (OF_WINDOWS, OF_JOINS)}


CLOCK_RECORDS = 500  # records between two looks at the clock while there is always another one
SETTINGS = {"statestore.cache.max.bytes": 0, "deserialization.exception.handler": "continue"}


class TransientTask:
    """The topology of a push query as one task with its state in memory. Close it, or use it in ``with``.

    It processes record by record, in the order in which they are fed.

    Args:
        plan: The query.
        settings: Settings of an application, such as the URL of a schema registry.
        errors: Counts the errors of the query's expressions.
    """

    def __init__(self, plan: PushPlan, settings: Mapping[str, Any], errors: EvaluationErrors | None = None) -> None:
        self.plan = plan
        self.errors = errors or EvaluationErrors(plan.id)
        self._rows: deque[ResultRow] = deque()
        builder = StreamsBuilder()
        result = compile_results(plan.root, builder, self.errors)
        stream = result.to_stream() if plan.root.is_table else result
        stream.foreach(self._collect)
        config = StreamsConfig(
            {"application.id": "transient-query", **settings, **SETTINGS, **emit_intervals(plan.settings)}
        )
        self._task = LocalTask(builder.build(), config, _forget)

    def _collect(self, key: Any, value: Any) -> None:
        if value is not None:
            self._rows.append(ResultRow(value))
        elif self.plan.root.is_table:
            self._rows.append(ResultRow(self._of_key(key), tombstone=True))

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
        self._task.process([record])
        while self._rows:
            yield self._rows.popleft()

    def pass_time(self, milliseconds: int) -> Iterator[ResultRow]:
        """Advance the wall clock, and return the rows that this causes."""
        self._task.pass_time(milliseconds)
        while self._rows:
            yield self._rows.popleft()

    def close(self) -> None:
        """Forget the state."""
        self._task.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _forget(record: RawRecord) -> None:
    """Leave a record of an internal topic, which has been processed."""


def results_of_records(plan: PushPlan, records: Iterable[RawRecord], settings: Mapping[str, Any]) -> Results:
    """Run a push query over records; it ends with them, or at its limit.

    Args:
        plan: The query.
        records: The records of its topics, in the order in which they are processed.
        settings: Settings of an application.
    """
    results = Results(plan.columns, iter(()), plan.id)
    rows = rows_of_records(plan, records, settings, results)
    results.rows = (row for row in rows if row is not None)
    return results


def rows_of_records(
    plan: PushPlan, records: Iterable[RawRecord | None], settings: Mapping[str, Any], results: Results
) -> Iterator[ResultRow | None]:
    """Yield the rows of a push query; None whenever no record comes for a while, or none has a row.

    Args:
        plan: The query.
        records: The records of its topics; None while there are none, when the wall clock goes on.
        settings: Settings of an application.
        results: The result, to which the reason of the end is written.
    """
    if plan.limits.limit == 0:
        results.ended = LIMIT_REACHED
        return
    with TransientTask(plan, settings) as task:
        rows = _fed(task, records)
        if plan.order:
            unsorted: Iterator[ResultRow] = (row for row in rows if row is not None)
            in_order: Iterable[ResultRow] = ordered(unsorted, plan.order, _values, task.errors)
            width = len(plan.columns)  # rows may have what they are sorted by at their end
            yield from _limited(plan, (ResultRow(row.values[:width], row.tombstone) for row in in_order), results)
            return
        yield from _limited(plan, rows, results)


def _values(row: ResultRow) -> tuple[Any, ...]:
    return row.values


def _limited(plan: PushPlan, rows: Iterator[ResultRow | None], results: Results) -> Iterator[ResultRow | None]:
    limit, skipped = plan.limits.limit, plan.limits.offset
    for row in rows:
        if row is None:
            yield None
        elif skipped:
            skipped -= 1
        else:
            yield row
            limit = None if limit is None else limit - 1
            if limit == 0:
                results.ended = LIMIT_REACHED
                return
    if plan.until == "now":
        results.ended = COMPLETED


def _fed(task: TransientTask, records: Iterable[RawRecord | None]) -> Iterator[ResultRow | None]:
    last = time.monotonic()
    for number, record in enumerate(records):
        if record is not None:
            yield from task.feed(record)
        if record is None or number % CLOCK_RECORDS == 0:
            now = time.monotonic()
            yield from task.pass_time(int((now - last) * 1000))
            last = now
            yield None
