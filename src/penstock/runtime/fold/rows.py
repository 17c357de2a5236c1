"""Aggregation row by row: exact for every function, and the reference for the vectorised ways."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from penstock.runtime.fold.model import FoldInput
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from penstock.runtime.rows import Rows
    from penstock.runtime.tables.groups import FoldResult
    from penstock.topology.operations.base import Aggregation
    from penstock.topology.operations.functions import Function

__all__ = [
    "RowFold",
    "fold_changes",
    "fold_rows",
    "initial",
    "plain_keys",
    "row_fold",
    "snapshot",
    "step_of",
]

_IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes})

Step = Callable[[Any, Any, Any], Any]  # (key, value, aggregate) -> aggregate


def snapshot(value: Any) -> Any:
    """Return a copy that the user's function may change at will.

    An aggregate that it changes in place must not change values sent on before. Java gets the same from reading
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
    """Return the aggregator as (key, value, aggregate) -> aggregate; those of reduce take no key."""
    if function is None:
        return lambda _key, _value, aggregate: aggregate + 1
    fn = function.fn
    if kind == "reduce":
        return lambda _key, value, aggregate: fn(aggregate, value)
    if function.arity == 2:
        return lambda _key, value, aggregate: fn(value, aggregate)
    return fn  # type: ignore[no-any-return]


def step_of(aggregation: Aggregation) -> Step:
    """Return the aggregator of a stream's windows as a step; a reduce starts with its first value."""
    step = _step(aggregation.aggregator, aggregation.kind)
    if aggregation.kind != "reduce":
        return step
    return lambda key, value, aggregate: value if aggregate is None else step(key, value, aggregate)


def initial(aggregation: Aggregation) -> Callable[[], Any]:
    """Return the initializer of an aggregation; for a reduce it returns None."""
    if aggregation.kind == "count":
        return lambda: 0
    return aggregation.initializer or (lambda: None)


RowFold = Callable[[Any, Any, int, Any, int], tuple[Any, Any, int]]


def row_fold(aggregation: Aggregation) -> RowFold:
    """Return the fold of one row: (key, value, timestamp, aggregate, its timestamp) -> old, new, its timestamp.

    As in Kafka, the old value of a first row is the initializer's.
    """
    if aggregation.kind == "reduce":
        return _reducing(aggregation)
    step, start = _step(aggregation.aggregator, aggregation.kind), initial(aggregation)

    def fold(key: Any, value: Any, stamp: int, old: Any, old_stamp: int) -> tuple[Any, Any, int]:
        if old is None:
            old = start()
        elif old_stamp > stamp:
            stamp = old_stamp
        return old, step(key, value, old if type(old) in _IMMUTABLE else snapshot(old)), stamp

    return fold


def _reducing(aggregation: Aggregation) -> RowFold:
    reducer = aggregation.aggregator
    assert reducer is not None  # noqa: S101 - a reduce has a reducer
    reduce = reducer.fn

    def fold(key: Any, value: Any, stamp: int, old: Any, old_stamp: int) -> tuple[Any, Any, int]:  # noqa: ARG001
        if old is None:
            return None, value, stamp
        return old, reduce(old if type(old) in _IMMUTABLE else snapshot(old), value), max(stamp, old_stamp)

    return fold


def fold_rows(fold_input: FoldInput) -> FoldResult:
    """Add each row to its group's aggregate: KStreamAggregate, KStreamReduce, KStreamWindowAggregate."""
    aggregation, rows = fold_input.aggregation, fold_input.rows
    fold = row_fold(aggregation)
    progress = fold_input.begin()
    state, state_stamps, keep = progress.state, progress.state_stamps, progress.keep
    keys = plain_keys(rows).items() if _uses_key(aggregation.aggregator) else [None] * len(rows)
    columns = zip(fold_input.groups.codes.tolist(), keys, rows.values.items(), rows.timestamps.tolist(), strict=True)
    for row, (code, key, value, stamp) in enumerate(columns):
        try:
            old, new, state_stamp = fold(key, value, stamp, state[code], state_stamps[code])
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            progress.failed += fold_input.failed(aggregation.aggregator, row, error)
            if progress.failed[-1] > row:
                break
            continue
        keep(code, old, new, state_stamp)
    return fold_input.finish(progress)


def plain_keys(rows: Rows) -> Column:
    """Return the keys as aggregators see them: without the window."""
    return rows.keys.keys if isinstance(rows.keys, WindowedColumn) else rows.keys


def _uses_key(function: Function | None) -> bool:
    """Return whether an aggregator gets the key."""
    return function is not None and function.arity == 3


def fold_changes(fold_input: FoldInput) -> FoldResult:
    """Take each row's old value out of its group's aggregate and add the new one: KTableAggregate, KTableReduce."""
    aggregation, rows = fold_input.aggregation, fold_input.rows
    reducing = aggregation.kind == "reduce"
    add = _step(aggregation.aggregator, aggregation.kind)
    counting = aggregation.kind == "count"
    remove: Step = (
        (lambda _key, _value, aggregate: aggregate - 1) if counting else _step(aggregation.subtractor, aggregation.kind)
    )
    start = initial(aggregation)
    progress = fold_input.begin()
    state, state_stamps, keep = progress.state, progress.state_stamps, progress.keep
    removed = rows.olds.items() if rows.olds is not None else [None] * len(rows)
    codes, stamps = fold_input.groups.codes.tolist(), rows.timestamps.tolist()
    columns = zip(codes, rows.keys.items(), rows.values.items(), removed, stamps, strict=True)
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
            progress.failed += fold_input.failed(function, row, error)
            if progress.failed[-1] > row:
                break
            continue
        keep(code, old, new, state_stamp)
    return fold_input.finish(progress)
