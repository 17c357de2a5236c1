"""Aggregating row by row: exact for every function, and what the vectorised ways must agree with."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.tables_store import Fold
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.runtime.tables_groups import Groups
    from penstock.topology.functions import Function
    from penstock.topology.operations import Aggregation

__all__ = ["finish", "fold_changes", "fold_rows", "initial", "plain_keys", "snapshot", "step_of"]

_IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes})

Step = Callable[[Any, Any, Any], Any]  # (key, value, aggregate) -> aggregate


def snapshot(value: Any) -> Any:
    """A copy that the user's function may change at will.

    An aggregate that it changes in place must not change what has been sent on before. Java gets the same from reading
    the state's bytes anew for each record.
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if kind is dict:
        return {k: v if type(v) in _IMMUTABLE else snapshot(v) for k, v in value.items()}
    if kind is list:
        return [v if type(v) in _IMMUTABLE else snapshot(v) for v in value]
    return deepcopy(value)


def _step(function: Function | None, kind: str) -> Step:
    """The aggregator in one shape; those of reduce take no key."""
    if function is None:
        return lambda _key, _value, aggregate: aggregate + 1
    fn = function.fn
    if kind == "reduce":
        return lambda _key, value, aggregate: fn(aggregate, value)
    if function.arity == 2:
        return lambda _key, value, aggregate: fn(value, aggregate)
    return fn  # type: ignore[no-any-return]


def step_of(aggregation: Aggregation) -> Step:
    """The aggregator of a stream's windows in one shape; a reduce starts with its first value."""
    step = _step(aggregation.aggregator, aggregation.kind)
    if aggregation.kind != "reduce":
        return step
    return lambda key, value, aggregate: value if aggregate is None else step(key, value, aggregate)


def initial(aggregation: Aggregation) -> Callable[[], Any]:
    """What an aggregate starts from; a reduce has nothing to start from."""
    if aggregation.kind == "count":
        return lambda: 0
    return aggregation.initializer or (lambda: None)


def fold_rows(
    aggregation: Aggregation,
    rows: Rows,
    groups: Groups,
    before: tuple[Column, NDArray[np.int64]],
    node: str,
    context: TaskContext,
    *,
    with_olds: bool = True,
) -> Fold:
    """Adds each row to its group's aggregate: KStreamAggregate, KStreamReduce, KStreamWindowAggregate."""
    if aggregation.kind == "reduce":
        return _reduce_rows(aggregation, rows, groups, before, node, context)
    step, start = _step(aggregation.aggregator, aggregation.kind), initial(aggregation)
    state, state_stamps = list(before[0].items()), before[1].tolist()
    news: list[Any] = []
    olds: list[Any] = []
    stamps: list[int] = []
    failed: list[int] = []
    keys = plain_keys(rows).items() if _uses_key(aggregation.aggregator) else [None] * len(rows)
    columns = zip(groups.codes.tolist(), keys, rows.values.items(), rows.timestamps.tolist(), strict=True)
    for row, (code, key, value, stamp) in enumerate(columns):
        old = state[code]
        try:
            if old is None:
                old = start()
                state_stamp = stamp
            else:
                state_stamp = max(stamp, state_stamps[code])
            new = step(key, value, old if type(old) in _IMMUTABLE else snapshot(old))
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            context.failed(node, aggregation.aggregator, rows, row, error)
            failed.append(row)
            continue
        state[code] = new
        state_stamps[code] = state_stamp
        news.append(new)
        stamps.append(state_stamp)
        if with_olds:
            olds.append(old)
    return finish(rows, groups, (state, state_stamps), (news, olds if with_olds else None, stamps), failed)


def plain_keys(rows: Rows) -> Column:
    """The keys as aggregators see them: without the window."""
    return rows.keys.keys if isinstance(rows.keys, WindowedColumn) else rows.keys


def _uses_key(function: Function | None) -> bool:
    return function is not None and function.arity == 3


def _reduce_rows(
    aggregation: Aggregation,
    rows: Rows,
    groups: Groups,
    before: tuple[Column, NDArray[np.int64]],
    node: str,
    context: TaskContext,
) -> Fold:
    assert aggregation.aggregator is not None  # noqa: S101 - a reduce has a reducer
    reduce = aggregation.aggregator.fn
    state, state_stamps = list(before[0].items()), before[1].tolist()
    news: list[Any] = []
    olds: list[Any] = []
    stamps: list[int] = []
    failed: list[int] = []
    columns = zip(groups.codes.tolist(), rows.values.items(), rows.timestamps.tolist(), strict=True)
    for row, (code, value, stamp) in enumerate(columns):
        old = state[code]
        if old is None:
            new = value
        else:
            try:
                new = reduce(old if type(old) in _IMMUTABLE else snapshot(old), value)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                context.failed(node, aggregation.aggregator, rows, row, error)
                failed.append(row)
                continue
            stamp = max(stamp, state_stamps[code])  # noqa: PLW2901 - the result's timestamp
        state[code] = new
        state_stamps[code] = stamp
        news.append(new)
        olds.append(old)
        stamps.append(stamp)
    return finish(rows, groups, (state, state_stamps), (news, olds, stamps), failed)


def fold_changes(
    aggregation: Aggregation,
    rows: Rows,
    groups: Groups,
    before: tuple[Column, NDArray[np.int64]],
    node: str,
    context: TaskContext,
) -> Fold:
    """Takes each row's old value out of its group's aggregate and adds the new one: KTableAggregate, KTableReduce."""
    reducing = aggregation.kind == "reduce"
    add = _step(aggregation.aggregator, aggregation.kind)
    counting = aggregation.kind == "count"
    remove: Step = (
        (lambda _key, _value, aggregate: aggregate - 1) if counting else _step(aggregation.subtractor, aggregation.kind)
    )
    start = initial(aggregation)
    state, state_stamps = list(before[0].items()), before[1].tolist()
    removed = rows.olds.items() if rows.olds is not None else [None] * len(rows)
    news: list[Any] = []
    olds: list[Any] = []
    stamps: list[int] = []
    failed: list[int] = []
    columns = zip(
        groups.codes.tolist(), rows.keys.items(), rows.values.items(), removed, rows.timestamps.tolist(), strict=True
    )
    for row, (code, key, value, gone, stamp) in enumerate(columns):
        old = state[code]
        function = aggregation.subtractor
        new = old
        try:
            later = stamp if old is None else max(stamp, state_stamps[code])
            state_stamp = stamp
            if gone is not None and old is not None:
                new = remove(key, gone, snapshot(old))
                state_stamp = later
            function = aggregation.aggregator
            if value is not None:
                if new is not None:
                    new = add(key, value, snapshot(new))
                    state_stamp = later
                elif reducing:
                    new = value
                else:
                    new = add(key, value, start())
                    state_stamp = later
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            context.failed(node, function, rows, row, error)
            failed.append(row)
            continue
        state[code] = new
        state_stamps[code] = state_stamp
        news.append(new)
        olds.append(old)
        stamps.append(state_stamp)
    return finish(rows, groups, (state, state_stamps), (news, olds, stamps), failed)


def finish(
    rows: Rows,
    groups: Groups,
    state: tuple[list[Any], list[int]],
    results: tuple[list[Any], list[Any] | None, list[int]],
    failed: list[int],
) -> Fold:
    """What the rows came to.

    Args:
        rows: All rows.
        groups: The same rows by key.
        state: Value and timestamp of each group after them.
        results: New value, old value and timestamp of each row that did not fail.
        failed: The rows for which a function raised.
    """
    kept: NDArray[np.int64] | None = None
    last = groups.last_rows()
    if failed:
        mask = np.ones(len(rows), np.bool_)
        mask[failed] = False
        kept = np.flatnonzero(mask)
        last = np.full(len(groups), -1, np.int64)
        last[groups.codes[kept]] = kept
    news, olds, stamps = results
    return Fold(
        final=Column.of_items(state[0]),
        final_stamps=np.asarray(state[1], np.int64),
        last=last,
        kept=kept,
        news=Column.of_items(news),
        olds=None if olds is None else Column.of_items(olds),
        stamps=np.asarray(stamps, np.int64),
    )
