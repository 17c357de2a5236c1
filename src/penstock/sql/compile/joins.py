"""Joins of streams and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.api.joins.windows import JoinWindows
from penstock.api.options import Joined, Materialized, StreamJoined, TableJoined
from penstock.sql.analyse import plans as p
from penstock.sql.compile.row_functions import Joiner, KeyOf
from penstock.sql.compile.serdes import RowsSerde, step_key_serde
from penstock.sql.compile.steps import Compiling, types_of

__all__ = ["join", "joiner_of"]

DAY_MS = 86_400_000


def join(
    step: p.JoinStreams | p.JoinStreamTable | p.JoinTables | p.JoinForeign, left: Any, right: Any, compiling: Compiling
) -> Any:
    """Return the stream or table of a join."""
    match step:
        case p.JoinStreams():
            return _streams(step, left, right, compiling)
        case p.JoinStreamTable():
            return _stream_table(step, left, right, compiling)
        case p.JoinTables():
            return _tables(step, left, right, compiling)
    return _foreign(step, left, right, compiling)


def joiner_of(step: p.JoinTables) -> Callable[[Any, Any, Any], Any]:
    """Return the function that makes the row of a join of a key and the rows of both tables."""
    return _joiner(step)


def _joiner(step: Any, *, swapped: bool = False) -> Joiner:
    left, right = len(step.left.fields), len(step.right.fields)
    return Joiner(left, right, keys=len(step.fields) - left - right, swapped=swapped)


def _streams(step: p.JoinStreams, left: Any, right: Any, compiling: Compiling) -> Any:
    times, swapped = step.times, step.kind == "RIGHT"
    sides = (RowsSerde(types_of(step.left.fields)), RowsSerde(types_of(step.right.fields)))
    if swapped:
        left, right, sides = right, left, (sides[1], sides[0])
    if times.grace_ms is None:
        windows = JoinWindows(times.before_ms, times.after_ms, max(DAY_MS - 2 * times.before_ms, 0), waits=False)
    else:
        windows = JoinWindows(times.before_ms, times.after_ms, times.grace_ms)
    joined = StreamJoined(
        compiling.name(step.name),
        key_serde=step_key_serde(step.left),
        value_serde=sides[0],
        other_value_serde=sides[1],
    )
    verb = {"INNER": left.join, "FULL": left.outer_join}.get(step.kind, left.left_join)
    return verb(right, _joiner(step, swapped=swapped), windows, joined)


def _stream_table(step: p.JoinStreamTable, left: Any, right: Any, compiling: Compiling) -> Any:
    joined = Joined(
        compiling.name(step.name),
        key_serde=step_key_serde(step.left),
        value_serde=RowsSerde(types_of(step.left.fields)),
        other_value_serde=RowsSerde(types_of(step.right.fields)),
    )
    verb = left.join if step.kind == "INNER" else left.left_join
    return verb(right, _joiner(step), joined)


def _tables(step: p.JoinTables, left: Any, right: Any, compiling: Compiling) -> Any:
    del compiling
    swapped = step.kind == "RIGHT"
    if swapped:
        left, right = right, left
    verb = {"INNER": left.join, "FULL": left.outer_join}.get(step.kind, left.left_join)
    return verb(right, _joiner(step, swapped=swapped))


def _foreign(step: p.JoinForeign, left: Any, right: Any, compiling: Compiling) -> Any:
    kept = Materialized(
        compiling.store(step, "FKJoin-Materialize"),
        key_serde=step_key_serde(step),
        value_serde=RowsSerde(types_of(step.fields)),
    )
    verb = left.join if step.kind == "INNER" else left.left_join
    return verb(
        right,
        _joiner(step),
        kept,
        foreign_key=KeyOf((step.foreign_key,), compiling.errors),
        joined=TableJoined(compiling.name("FKJoin")),
    )
