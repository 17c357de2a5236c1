"""Aggregation row by row, exact for every function and the reference for `columns`, and by expressions in rounds.

An expression over ``aggregate``, ``value``, its fields, ``key`` and ``timestamp`` sees whole columns, an aggregation is
a chain. So the batch is done in rounds: first the first row of every group, then the second of every group, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.api.groups.agg import BuiltInAggregator
from penstock.errors import ProcessingError
from penstock.runtime.fold.columns import FoldResult
from penstock.runtime.functions import frame, select
from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.fold.columns import RowGroups
    from penstock.runtime.rows import Rows
    from penstock.topology.operations.definitions import Aggregation
    from penstock.topology.operations.functions import Function

__all__ = [
    "ChangeFold",
    "FoldInput",
    "RowFold",
    "fold_changes",
    "fold_expression",
    "fold_rows",
    "initial",
    "plain_keys",
    "row_fold",
    "snapshot",
    "step_of",
]


@dataclass(frozen=True, slots=True)
class FoldInput:
    """Rows to add to the aggregates of their keys.

    Attributes:
        aggregation: The functions.
        rows: The rows, none with a null key.
        groups: The same rows by key.
        before: Value and timestamp of each group before them; a null value stands for none, with the timestamp -1.
        node: The name of the aggregation's node.
        context: The task.
    """

    aggregation: Aggregation
    rows: Rows
    groups: RowGroups
    before: tuple[Column, NDArray[np.int64]]
    node: str
    context: TaskContext

    def failed(self, function: Function | None, row: int, error: Exception) -> list[int]:
        """Report a row for which a function raised; return the rows that fail with it, itself included."""
        rest = self.context.failed(self.node, function, self.rows, row, error)
        return list(range(row, len(self.rows) if rest else row + 1))

    def begin(self) -> FoldProgress:
        """Copy the groups' values: the fold changes them as it goes."""
        return FoldProgress(list(self.before[0].items()), self.before[1].tolist())

    def finish(self, progress: FoldProgress) -> FoldResult:
        """Return the result for the table."""
        kept: NDArray[np.int64] | None = None
        last = self.groups.last_rows()
        if progress.failed:
            mask = np.ones(len(self.rows), np.bool_)
            mask[progress.failed] = False
            kept = np.flatnonzero(mask)
            last = np.full(len(self.groups), -1, np.int64)
            last[self.groups.codes[kept]] = kept
        return FoldResult(
            final=Column.of_items(progress.state),
            final_stamps=np.asarray(progress.state_stamps, np.int64),
            last=last,
            changed_rows=kept,
            news=Column.of_items(progress.news),
            olds=Column.of_items(progress.olds),
            stamps=np.asarray(progress.stamps, np.int64),
        )


@dataclass(slots=True)
class FoldProgress:
    """The state of a fold while it goes through the rows.

    Attributes:
        state: The value of each group so far.
        state_stamps: The timestamp of each group's value.
        news: The new value of each row that did not fail.
        olds: The old value of each such row.
        stamps: The result's timestamp of each such row.
        failed: The rows for which a function raised, and the handler said to continue.
    """

    state: list[Any]
    state_stamps: list[int]
    news: list[Any] = field(default_factory=list)
    olds: list[Any] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def keep(self, code: int, old: Any, new: Any, stamp: int) -> None:
        """Note the result of a row of the group ``code``."""
        self.state[code] = new
        self.state_stamps[code] = stamp
        self.news.append(new)
        self.olds.append(old)
        self.stamps.append(stamp)


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
        if _IMMUTABLE.issuperset(map(type, value.values())):
            return value.copy()
        return {k: v if type(v) in _IMMUTABLE else snapshot(v) for k, v in value.items()}
    if kind is list:
        if _IMMUTABLE.issuperset(map(type, value)):
            return value.copy()
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
    function = aggregation.aggregator
    copied = snapshot
    if function is None or isinstance(function.fn, BuiltInAggregator):
        copied = _same  # these change nothing in place

    def fold(key: Any, value: Any, stamp: int, old: Any, old_stamp: int) -> tuple[Any, Any, int]:
        if old is None:
            old = start()
        elif old_stamp > stamp:
            stamp = old_stamp
        return old, step(key, value, old if type(old) in _IMMUTABLE else copied(old)), stamp

    return fold


def _same(value: Any) -> Any:
    return value


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


class ChangeFold:
    """The fold of one change: takes its old value out of its group's aggregate and adds the new one.

    Args:
        aggregation: The functions.

    Attributes:
        function: The user's function that has been called last; None: it is ours.
    """

    def __init__(self, aggregation: Aggregation) -> None:
        kind = aggregation.kind
        self.function = aggregation.aggregator
        self._functions = aggregation.subtractor, aggregation.aggregator
        self._is_reduce = kind == "reduce"
        self._start = initial(aggregation)
        self._add = _step(aggregation.aggregator, kind)
        self._remove: Step = (
            (lambda _key, _value, aggregate: aggregate - 1) if kind == "count" else _step(aggregation.subtractor, kind)
        )

    def __call__(self, key: Any, value: Any, gone: Any, stamp: int, old: Any, old_stamp: int) -> tuple[Any, int]:
        """Return the new aggregate and its timestamp.

        Args:
            key: The group.
            value: The new value of the change.
            gone: Its old value.
            stamp: Its timestamp.
            old: The aggregate so far; None: there is none.
            old_stamp: The aggregate's timestamp.
        """
        self.function, aggregator = self._functions
        new = old
        later = stamp if old is None else max(stamp, old_stamp)
        if gone is not None and old is not None:
            new = self._remove(key, gone, snapshot(old))
            stamp = later
        self.function = aggregator
        if value is None:
            return new, stamp
        if new is not None:
            return self._add(key, value, snapshot(new)), later
        if self._is_reduce:
            return value, stamp
        return self._add(key, value, self._start()), later


def fold_changes(fold_input: FoldInput) -> FoldResult:
    """Fold each row's change into the aggregate of its group: KTableAggregate, KTableReduce."""
    rows, fold = fold_input.rows, ChangeFold(fold_input.aggregation)
    progress = fold_input.begin()
    state, state_stamps, keep = progress.state, progress.state_stamps, progress.keep
    removed = rows.olds.items() if rows.olds is not None else [None] * len(rows)
    codes, stamps = fold_input.groups.codes.tolist(), rows.timestamps.tolist()
    columns = zip(codes, rows.keys.items(), rows.values.items(), removed, stamps, strict=True)
    for row, (code, key, value, gone, stamp) in enumerate(columns):
        old = state[code]
        try:
            new, state_stamp = fold(key, value, gone, stamp, old, state_stamps[code])
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            progress.failed += fold_input.failed(fold.function, row, error)
            if progress.failed[-1] > row:
                break
            continue
        keep(code, old, new, state_stamp)
    return fold_input.finish(progress)


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
