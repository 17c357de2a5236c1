"""Aggregating with a Polars expression over ``aggregate``, ``value``, its fields, ``key`` and ``timestamp``.

An expression sees whole columns, an aggregation is a chain. So the batch is done in rounds: first the first row of
every group, then the second of every group, and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.aggregate_rows import finish, initial, plain_keys
from penstock.runtime.expressions import frame, select
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.runtime.tables_groups import Groups
    from penstock.runtime.tables_store import Fold
    from penstock.topology.functions import Function
    from penstock.topology.operations import Aggregation

__all__ = ["fold_expression"]


def fold_expression(
    aggregation: Aggregation,
    rows: Rows,
    groups: Groups,
    before: tuple[Column, NDArray[np.int64]],
    node: str,
    context: TaskContext,
) -> Fold:
    """Adds each row to its group's aggregate, a round for each row of the largest group."""
    assert aggregation.aggregator is not None  # noqa: S101 - the caller has looked
    function = aggregation.aggregator
    start = initial(aggregation)
    state, state_stamps = list(before[0].items()), before[1].copy()
    values = rows.values.items()
    news: list[Any] = [None] * len(rows)
    olds: list[Any] = [None] * len(rows)
    stamps = np.zeros(len(rows), np.int64)
    good = np.ones(len(rows), np.bool_)
    segments = groups.segments
    by_round = np.argsort(segments.occurrence(), kind="stable")
    for part in np.split(by_round, np.cumsum(np.bincount(segments.occurrence()))[:-1]):
        positions = np.sort(part)
        codes = groups.codes[positions]
        fresh = [state[c] is None for c in codes.tolist()]
        for position, code in zip(positions.tolist(), codes.tolist(), strict=True):
            olds[position] = start() if state[code] is None else state[code]
            news[position] = values[position]
        starts_itself = aggregation.kind == "reduce"  # with the first value
        calls = positions[~np.array(fresh, np.bool_)] if starts_itself else positions
        failed = _round(function, rows, calls, olds, news, node, context)
        good[failed] = False
        done = positions[good[positions]]
        new_stamps = np.maximum(rows.timestamps[positions], np.where(fresh, -1, state_stamps[codes]))
        stamps[positions] = new_stamps
        state_stamps[groups.codes[done]] = stamps[done]
        for position in done.tolist():
            state[groups.codes[position]] = news[position]
    if not good.all():
        kept = np.flatnonzero(good).tolist()
        news, olds, stamps = [news[i] for i in kept], [olds[i] for i in kept], stamps[kept]
    results = (news, olds, stamps.tolist())
    return finish(rows, groups, (state, state_stamps.tolist()), results, np.flatnonzero(~good).tolist())


def _round(
    function: Function,
    rows: Rows,
    positions: NDArray[np.int64],
    olds: list[Any],
    news: list[Any],
    node: str,
    context: TaskContext,
) -> list[int]:
    """One round: sets the rows' new aggregates; halves the rows until the bad ones are found, and gives those."""
    if not len(positions):
        return []
    try:
        results = _evaluate(function, rows.take(positions), [olds[i] for i in positions.tolist()], node)
    except Exception as error:  # noqa: BLE001 - Polars raises many kinds
        if len(positions) == 1:
            context.failed(node, function, rows, int(positions[0]), error)
            return [int(positions[0])]
        half = len(positions) // 2
        return [
            *_round(function, rows, positions[:half], olds, news, node, context),
            *_round(function, rows, positions[half:], olds, news, node, context),
        ]
    for position, result in zip(positions.tolist(), results, strict=True):
        news[position] = result
    return []


def _evaluate(function: Function, rows: Rows, aggregates: list[Any], node: str) -> list[Any]:
    table = frame(rows.with_keys(plain_keys(rows)), None).with_columns(
        Column.of_items(aggregates).series().alias("aggregate")
    )
    result = select(table, function.fn)
    if result.width != 1 or len(result) != len(rows):
        raise ProcessingError(
            f"{node}: the expression at {function.file}:{function.line} must give one value per record",
            hint="Combine the columns aggregate and value, for example pl.col('aggregate') + pl.col('value').",
            node=node,
        )
    return result.to_series().to_list()
