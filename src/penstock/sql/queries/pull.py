"""Pull queries of tables: rows read through the plan of the query that keeps the table, then conditions and order.

Only some steps of a query have a store: sources, aggregations, re-keyed tables, foreign-key joins. The steps below them
(HAVING, a join by key, the projection) are computed for the rows that are read, so that a table costs no second copy
of its state. What comes out is what the query has written to its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.serde.windowed import Windowed
from penstock.sql.analyse import plans as p
from penstock.sql.catalog import Source
from penstock.sql.compile.aggregates import results_of
from penstock.sql.compile.queries import joiner_of, table_stores
from penstock.sql.compile.row_functions import Keep, Select
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.queries.host import MaterializedRow, StoreAccess
from penstock.sql.queries.plans import (
    KeyLookup,
    Lookup,
    PullPlan,
    RangeLookup,
    ResultRow,
    Results,
    Scan,
    limited,
    ordered,
)
from penstock.sql.types.sql_type import base_name

__all__ = ["TableRows", "pulled"]


class TableRows:
    """The rows of the table that a persistent query keeps.

    Args:
        plan: The query.
        access: Its stores.
        prefix: Before the names of its stores, where one topology has several queries.
        errors: Counts the errors of its expressions.
    """

    def __init__(
        self, plan: p.QueryPlan, access: StoreAccess, prefix: str = "", errors: EvaluationErrors | None = None
    ) -> None:
        self._plan = plan
        self._access = access
        self._stores = table_stores(plan, prefix)
        self._errors = errors or EvaluationErrors(plan.id)

    def rows(self, lookup: Lookup, starts: tuple[int, int]) -> Iterator[MaterializedRow]:
        """Return the rows of a lookup, whose values are the columns of the query's value.

        Args:
            lookup: The keys.
            starts: The first and the last start of windows, in milliseconds; for tables with windows.
        """
        return self._rows(self._plan.root, lookup, starts)

    def _rows(self, step: p.PlanStep, lookup: Lookup, starts: tuple[int, int]) -> Iterator[MaterializedRow]:
        if id(step) in self._stores:
            yield from self._stored(step, lookup, starts)
            return
        match step:
            case p.Project():
                select = Select(step.values, self._errors)
                for row in self._rows(step.above, lookup, starts):
                    yield row._replace(value=select(row.value))
            case p.FilterStep():
                keep = Keep((step.predicate,), self._errors)
                yield from (row for row in self._rows(step.above, lookup, starts) if keep(row.value))
            case p.JoinTables():
                yield from self._joined(step, lookup, starts)
            case _:
                raise TypeError(f"no step of a table: {type(step).__name__}")

    def _stored(self, step: p.PlanStep, lookup: Lookup, starts: tuple[int, int]) -> Iterator[MaterializedRow]:
        name = self._stores[id(step)]
        if not isinstance(step, p.Aggregate):
            # A store of windowed keys cannot be looked up by the key alone; the query's condition chooses the rows.
            yield from self._plain(name, lookup if step.window is None else Scan())
            return
        result = results_of(step, self._errors)
        rows = self._plain(name, lookup) if step.times is None else self._windows(step.times, name, lookup, starts)
        for row in rows:
            if row.value is not None:
                yield row._replace(value=result(row.key, row.value))

    def _plain(self, name: str, lookup: Lookup) -> Iterator[MaterializedRow]:
        match lookup:
            case KeyLookup(keys):
                for key in keys:
                    yield from self._access.get(name, key)
            case RangeLookup(lower, upper):
                yield from self._access.range(name, lower, upper)
            case _:
                yield from self._access.range(name, None, None)

    def _windows(
        self, times: p.WindowTimes, name: str, lookup: Lookup, starts: tuple[int, int]
    ) -> Iterator[MaterializedRow]:
        keys: tuple[Any, ...] = lookup.keys if isinstance(lookup, KeyLookup) else (None,)
        for key in keys:
            if times.kind == "SESSION":
                yield from self._access.sessions(name, key)
            else:
                yield from self._access.windows(name, key, starts, times.size_ms)

    def _joined(self, step: p.JoinTables, lookup: Lookup, starts: tuple[int, int]) -> Iterator[MaterializedRow]:
        join = joiner_of(step)
        left = _by_key(self._rows(step.left, lookup, starts))
        right = _by_key(self._rows(step.right, lookup, starts))
        for text in dict.fromkeys((*left, *right)):
            one, two = left.get(text), right.get(text)
            if (one is None and step.kind in ("INNER", "LEFT")) or (two is None and step.kind in ("INNER", "RIGHT")):
                continue
            sides = [row for row in (one, two) if row is not None]
            key = sides[0].key
            value = join(key, one and one.value, two and two.value)
            yield MaterializedRow(key, value, max(row.timestamp for row in sides))


def _by_key(rows: Iterator[MaterializedRow]) -> Mapping[str, MaterializedRow]:
    return {repr(row.key.key if isinstance(row.key, Windowed) else row.key): row for row in rows}


# What Protobuf has in the place of a null, by the type of the column; the other types have null.
DEFAULTS: Mapping[str, Callable[[], Any]] = {
    "BOOLEAN": bool,
    "INTEGER": int,
    "BIGINT": int,
    "DOUBLE": float,
    "STRING": str,
    "ARRAY": list,
    "MAP": dict,
}


def pulled(plan: PullPlan, rows: Iterable[MaterializedRow], query_id: str, errors: EvaluationErrors) -> Results:
    """Answer a pull query.

    Args:
        plan: The query.
        rows: The rows of its lookup: those of `TableRows`, or of the table's topic.
        query_id: The id of the query.
        errors: Counts the errors of its expressions.
    """
    written = as_written(plan.source) if plan.writer is not None else None
    whole: Iterable[tuple[Any, ...]] = (_row(plan.source, row, written) for row in rows)
    if plan.where is not None:
        whole = filter(Keep((plan.where,), errors), whole)
    chosen = limited(ordered(whole, plan.order, lambda row: row, errors), plan.limits)
    select = Select(plan.values, errors)
    return Results(plan.columns, _selected(chosen, select), query_id)


def _selected(rows: Iterator[tuple[Any, ...]], select: Select) -> Iterator[ResultRow]:
    for row in rows:
        values = select(row)
        assert values is not None, "no row of a table is a tombstone"  # noqa: S101
        yield ResultRow(values)


def as_written(source: Source) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
    """Make the function that puts the defaults of Protobuf in the place of nulls, as the topic of a table has them.

    Returns:
        None for formats that have nulls.
    """
    form = source.value_format
    if not form.name.startswith("PROTOBUF") or dict(form.properties).get("NULLABLE_REPRESENTATION"):
        return None
    defaults = [DEFAULTS.get(base_name(column.type)) for column in source.values]

    def filled(values: Sequence[Any]) -> Sequence[Any]:
        pairs = zip(values, defaults, strict=True)
        return [default() if value is None and default is not None else value for value, default in pairs]

    return filled


def _row(
    source: Source, row: MaterializedRow, written: Callable[[Sequence[Any]], Sequence[Any]] | None
) -> tuple[Any, ...]:
    """Return a row with all columns of a source: keys and values in its order, time, place, the window's bounds."""
    key, bounds = row.key, ()
    if isinstance(key, Windowed):
        bounds = (key.window.start, key.window.end)  # type: ignore[assignment]
        key = key.key
    keys, values = iter(key or ()), iter(row.value if written is None else written(row.value))
    columns = [next(keys, None) if column.is_key else next(values, None) for column in source.columns]
    return (*columns, row.timestamp, -1, -1, *bounds)
