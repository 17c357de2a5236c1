"""Pull queries of tables: read the rows of the lookup, check the condition, order, cut, project."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.serde.windowed import Windowed
from penstock.sql.catalog import Source
from penstock.sql.compile.row_functions import Keep, Select
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.queries.ordering import limited, ordered
from penstock.sql.queries.plans import PullPlan, ResultRow, Results
from penstock.sql.queries.stores import MaterializedRow
from penstock.sql.types.sql_type import base_name

__all__ = ["pulled"]

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
        rows: The rows of its lookup: those of `penstock.sql.queries.tables.TableRows`, or of the table's topic.
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
