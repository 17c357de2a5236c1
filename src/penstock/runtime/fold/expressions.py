"""Aggregating with a Polars expression over ``aggregate``, ``value``, its fields, ``key`` and ``timestamp``.

An expression sees whole columns, an aggregation is a chain. So the batch is done in rounds: first the first row of
every group, then the second of every group, and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ProcessingError
from penstock.runtime.fold.rows import initial, plain_keys
from penstock.runtime.functions.expressions import frame, select
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.fold.model import FoldInput
    from penstock.runtime.rows import Rows
    from penstock.runtime.tables.groups import FoldResult
    from penstock.topology.operations.functions import Function

__all__ = ["fold_expression"]


def fold_expression(fold_input: FoldInput) -> FoldResult:
    """Add each row to its group's aggregate, a round for each row of the largest group."""
    start, rows, groups = initial(fold_input.aggregation), fold_input.rows, fold_input.groups
    progress = fold_input.begin()
    state, state_stamps = progress.state, fold_input.before[1].copy()
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
        starts_itself = fold_input.aggregation.kind == "reduce"  # with the first value
        calls = positions[~np.array(fresh, np.bool_)] if starts_itself else positions
        good[_round(fold_input, calls, olds, news)] = False
        done = positions[good[positions]]
        new_stamps = np.maximum(rows.timestamps[positions], np.where(fresh, -1, state_stamps[codes]))
        stamps[positions] = new_stamps
        state_stamps[groups.codes[done]] = stamps[done]
        for position in done.tolist():
            state[groups.codes[position]] = news[position]
    kept = np.flatnonzero(good).tolist()
    progress.state_stamps = state_stamps.tolist()
    progress.news, progress.olds, progress.stamps = (
        [news[i] for i in kept],
        [olds[i] for i in kept],
        stamps[kept].tolist(),
    )
    progress.failed = np.flatnonzero(~good).tolist()
    return fold_input.finish(progress)


def _round(fold_input: FoldInput, positions: NDArray[np.int64], olds: list[Any], news: list[Any]) -> list[int]:
    """Set the rows' new aggregates; halve the rows until the bad ones are found, and return those."""
    if not len(positions):
        return []
    function = fold_input.aggregation.aggregator
    assert function is not None  # noqa: S101 - the caller has looked
    try:
        results = _evaluate(
            function, fold_input.rows.take(positions), [olds[i] for i in positions.tolist()], fold_input.node
        )
    except Exception as error:  # noqa: BLE001 - Polars raises many kinds
        if len(positions) == 1:
            fold_input.failed(function, int(positions[0]), error)
            return [int(positions[0])]
        half = len(positions) // 2
        return [*_round(fold_input, positions[:half], olds, news), *_round(fold_input, positions[half:], olds, news)]
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
            f"{node}: the expression at {function.file}:{function.line} must return one value per record",
            hint="Combine the columns aggregate and value, for example pl.col('aggregate') + pl.col('value').",
            node=node,
        )
    return result.to_series().to_list()
