"""Pull queries of tables: read the rows of the lookup, check the condition, order, cut, project."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.serde.windowed import Windowed
from penstock.sql.catalog import Source
from penstock.sql.compile.row_functions import Keep, Select
from penstock.sql.functions.errors import EvaluationErrors
from penstock.sql.queries.ordering import limited, ordered
from penstock.sql.queries.plans import PullPlan, ResultRow, Results
from penstock.sql.queries.stores import StoredRow

__all__ = ["pulled"]


def pulled(plan: PullPlan, rows: Iterable[StoredRow], query_id: str, errors: EvaluationErrors) -> Results:
    """Answer a pull query.

    Args:
        plan: The query.
        rows: The rows of its lookup: those of `penstock.sql.queries.tables.TableRows`, or of the table's topic.
        query_id: The id of the query.
        errors: Counts the errors of its expressions.
    """
    whole: Iterable[tuple[Any, ...]] = (_row(plan.source, row) for row in rows)
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


def _row(source: Source, row: StoredRow) -> tuple[Any, ...]:
    """A row with all columns of a source: keys and values in its order, time, place, the window's bounds."""
    key, bounds = row.key, ()
    if isinstance(key, Windowed):
        bounds = (key.window.start, key.window.end)  # type: ignore[assignment]
        key = key.key
    keys, values = iter(key or ()), iter(row.value)
    columns = [next(keys, None) if column.is_key else next(values, None) for column in source.columns]
    return (*columns, row.timestamp, -1, -1, *bounds)
