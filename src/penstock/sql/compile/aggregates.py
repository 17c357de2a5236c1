"""GROUP BY: the aggregation over a stream or a table, its windows, and rows of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from penstock.api.options import Grouped, Materialized
from penstock.api.windowed.windows import SessionWindows, SlidingWindows, TimeWindows
from penstock.runtime.fold.columns import KnownAggregation, KnownAggregator
from penstock.serde.column import Column, RowColumn
from penstock.serde.windowed import Windowed, WindowedColumn
from penstock.sql.analyse.plans import Aggregate, AggregateCall, WindowTimes
from penstock.sql.compile.row_functions import KeyOf, Select
from penstock.sql.compile.serdes import RowsSerde, StateSerde, step_key_serde
from penstock.sql.compile.steps import Compiling
from penstock.sql.functions.evaluation_errors import EvaluationErrors, FunctionFailed
from penstock.sql.types import BIGINT, INTEGER, SqlType
from penstock.sql.types.numbers import INT_MAX, LONG_MAX
from penstock.topology.operations.functions import ColumnFunction

__all__ = ["aggregate", "results_of"]

Row = tuple[Any, ...]
LIMITS: dict[SqlType, int] = {INTEGER: INT_MAX, BIGINT: LONG_MAX}  # beyond them sums wrap around


def aggregate(step: Aggregate, above: Any, compiling: Compiling) -> Any:
    """Return the table of an aggregation."""
    errors = compiling.errors
    arguments = tuple(argument for call in step.calls for argument in call.arguments)
    values = Select(arguments, errors)
    value_serde = RowsSerde([argument.type for argument in arguments])
    grouped = Grouped(
        compiling.name("Aggregate-GroupBy"), key_serde=step_key_serde(step, windowed=False), value_serde=value_serde
    )
    keys = [index for index, field in enumerate(step.above.fields) if field.role == "KEY"]
    key = KeyOf(step.grouping, errors, keys, len(step.above.fields), whole=True)
    states = _States(step.calls, errors)
    retention = step.times.retention_ms if step.times is not None else None
    kept = Materialized(
        compiling.store(step, "Aggregate-Aggregate-Materialize"),
        key_serde=grouped.key_serde,
        value_serde=StateSerde(_meaning(step), _longs(step.calls)),
        retention=None if retention is None else retention,
    )
    if step.above.is_table:
        groups = above.group_by(_Regroup(key, values), grouped)
        table = groups.aggregate(states.initial, _Add(states, step.calls), states.undo, kept)
    else:
        if step.by_key:
            groups = above.filter(_WholeRow()).map_values(values).group_by_key(grouped)
        else:
            groups = above.select_key(key).map_values(values).group_by_key(grouped)
        table = _folded(groups, step, states, kept)
    return table.map_values(results_of(step, errors))


def results_of(step: Aggregate, errors: EvaluationErrors) -> Callable[[Any, list[Any]], Row]:
    """Return the function that makes the row of an aggregation of a key and the states that its store has."""
    return _Result(step.calls, errors, bounds=step.times is not None)


def _folded(groups: Any, step: Aggregate, states: _States, kept: Materialized) -> Any:
    add = _Add(states, step.calls)
    if step.times is None:
        return groups.aggregate(states.initial, add, kept)
    windowed = groups.windowed_by(_windows(step.times))
    if step.final:
        windowed = windowed.emit_strategy("on_window_close", idle=step.idle_ms)
    if step.times.kind == "SESSION":
        return windowed.aggregate(states.initial, add, states.merge, kept)
    return windowed.aggregate(states.initial, add, kept)


def _meaning(step: Aggregate) -> str:
    """Return what the states of a step are those of."""
    grouping = ", ".join(f"{each.text} {each.type}" for each in step.grouping)
    return f"{', '.join(call.text for call in step.calls)} BY {grouping}"


def _windows(times: WindowTimes) -> Any:
    match times.kind:
        case "SESSION":
            return SessionWindows.of(times.size_ms, grace=times.grace_ms)
        case "SLIDING":
            return SlidingWindows.of(times.size_ms, grace=times.grace_ms)
    return TimeWindows.of(times.size_ms, grace=times.grace_ms, advance=times.advance_ms)


class _WholeRow(ColumnFunction):
    """The condition that there is a value and no key column is null: windows would take a record without a value."""

    def __call__(self, key: Any, value: Any) -> bool:
        return value is not None and key is not None and None not in key

    def over_columns(self, *arguments: Column) -> Column | None:
        keys, values = arguments
        if not isinstance(keys, RowColumn):
            return None
        missing = [values.null_mask(), keys.null_mask(), *(column.null_mask() for column in keys.columns)]
        return Column.of_series(pl.Series("", ~np.logical_or.reduce(missing)))


def _known(calls: Sequence[AggregateCall]) -> KnownAggregation | None:
    """Return the aggregates as parts that run over columns; None if one of them does not."""
    parts: list[tuple[str, KnownAggregation]] = []
    index = 0
    for call in calls:
        name, kinds = call.function.name, [argument.type for argument in call.arguments]
        if name == "COUNT" and len(kinds) < 2:
            parts.append((str(index) if kinds else "", KnownAggregation("count", start=0)))
        elif name == "SUM" and kinds[0] in LIMITS and call.function.type == kinds[0]:
            parts.append((str(index), KnownAggregation("sum", start=0, limit=LIMITS[kinds[0]])))
        else:
            return None
        index += len(kinds)
    return KnownAggregation("row", parts=tuple(parts)) if parts else None


def _longs(calls: Sequence[AggregateCall]) -> int:
    """Return the number of states, if all are whole numbers."""
    return 0 if _known(calls) is None else len(calls)


class _Add(KnownAggregator):
    """The addition of a row to the states; of counts and sums of whole numbers over columns."""

    def __init__(self, states: _States, calls: Sequence[AggregateCall]) -> None:
        self._states = states
        self.known = _known(calls)

    def __call__(self, key: Any, value: Row, states: list[Any]) -> list[Any]:
        return self._states.add(key, value, states)


class _Regroup:
    """The new key and the arguments of a table's row."""

    def __init__(self, key: KeyOf, values: Select) -> None:
        self._key = key
        self._values = values

    def __call__(self, key: Any, value: Row) -> tuple[Any, Any]:
        return self._key(key, value), self._values(value)


class _States:
    """The states of several aggregates as one list.

    Lists and dicts are copied before a step may change them: results that were sent before hold them too. A step of a
    user's function that fails leaves its state as it is, and its error is reported.
    """

    def __init__(self, calls: Sequence[AggregateCall], errors: EvaluationErrors) -> None:
        self._errors = errors
        self._names = [call.function.name for call in calls]
        self._steps = [call.function.steps for call in calls]
        self._widths = [len(call.arguments) for call in calls]

    def initial(self) -> list[Any]:
        """Return the states of no rows."""
        return [steps.initialise() for steps in self._steps]

    def add(self, key: Any, value: Row, states: list[Any]) -> list[Any]:
        """Return the states with a row."""
        del key
        return self._each(value, states, [steps.add for steps in self._steps])

    def undo(self, key: Any, value: Row, states: list[Any]) -> list[Any]:
        """Return the states without a row."""
        del key
        return self._each(value, states, [steps.undo for steps in self._steps])

    def merge(self, key: Any, left: list[Any], right: list[Any]) -> list[Any]:
        """Return the states of two sessions."""
        del key
        merged_states = []
        for name, steps, one, two in zip(self._names, self._steps, left, right, strict=True):
            try:
                merged_states.append(steps.merge(_copy(one), _copy(two)))
            except FunctionFailed as error:
                self._errors.report(name, error)
                merged_states.append(one)
        return merged_states

    def _each(self, value: Row, states: list[Any], steps: Sequence[Any]) -> list[Any]:
        new_states, start = [], 0
        for at, (step, width, state) in enumerate(zip(steps, self._widths, states, strict=True)):
            try:
                new_states.append(step(_copy(state), *value[start : start + width]))
            except FunctionFailed as error:
                self._errors.report(self._names[at], error)
                new_states.append(state)
            start += width
        return new_states


def _copy(state: Any) -> Any:
    if isinstance(state, list):
        return [_copy(item) if isinstance(item, list | dict) else item for item in state]
    if isinstance(state, dict):
        return {key: _copy(item) if isinstance(item, list | dict) else item for key, item in state.items()}
    return state


class _Result(ColumnFunction):
    """The row behind an aggregation: the key's columns, the results, the bounds of the window."""

    def __init__(self, calls: Sequence[AggregateCall], errors: EvaluationErrors, *, bounds: bool) -> None:
        self._errors = errors
        self._names = [call.function.name for call in calls]
        self._results = [call.function.steps.result for call in calls]
        self._bounds = bounds
        self._longs = bool(_longs(calls))

    def __call__(self, key: Any, states: list[Any]) -> Row:
        plain = key.key if isinstance(key, Windowed) else key
        results = [self._of(at, state) for at, state in enumerate(states)]
        bounds = (key.window.start, key.window.end) if self._bounds else ()
        return (*plain, *results, *bounds)

    def over_columns(self, *arguments: Column) -> Column | None:
        keys, states = arguments
        if not isinstance(states, RowColumn) or states.absent is not None:
            return None
        plain = keys.keys if isinstance(keys, WindowedColumn) else keys
        if not isinstance(plain, RowColumn) or plain.absent is not None:
            return None
        bounds: list[Column] = []
        if self._bounds:
            if not isinstance(keys, WindowedColumn):
                return None
            bounds = [Column.of_series(pl.Series("", times)) for times in (keys.starts, keys.ends)]
        return RowColumn([*plain.columns, *self._columns(states), *bounds], len(states))

    def _columns(self, states: RowColumn) -> list[Column]:
        """Return the results; counts and sums of whole numbers are their states."""
        if self._longs:
            return list(states.columns)
        pairs = enumerate(states.columns)
        return [Column.of_items([self._of(at, state) for state in column.items()]) for at, column in pairs]

    def _of(self, at: int, state: Any) -> Any:
        try:
            return self._results[at](state)
        except FunctionFailed as error:
            self._errors.report(self._names[at], error)
            return None
