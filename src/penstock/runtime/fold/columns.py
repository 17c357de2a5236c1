"""Aggregations of whole columns, where the kind of the aggregation is known.

The results equal those of the row loop, value by value: the sums of floats are added up in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.errors import SerializationError
from penstock.runtime.fold.recognise import KnownAggregation
from penstock.runtime.tables.groups import FoldResult, RowGroups
from penstock.serde.column import Column, RowColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.rows import Rows

__all__ = ["fold_known", "numbers_of", "summands"]

_INT64_MAX = (1 << 63) - 1
_Result = tuple[Column, Column | None, Column | None]  # final; news and olds where each row's are asked for


def fold_known(
    known: KnownAggregation, rows: Rows, groups: RowGroups, before: tuple[Column, NDArray[np.int64]], *, per_row: bool
) -> FoldResult | None:
    """Aggregates whole columns; None when these columns need the row loop."""
    stamps = groups.segments.running_max(rows.timestamps, before[1]) if per_row else None
    if per_row and stamps is None:
        return None
    result = _fold(known, rows, groups, before[0], per_row=per_row)
    if result is None:
        return None
    final, news, olds = result
    last = groups.last_rows()
    if stamps is not None:
        final_stamps = stamps[last]
    else:
        final_stamps = before[1].copy()
        np.maximum.at(final_stamps, groups.codes, rows.timestamps)
    return FoldResult(final, final_stamps, last, None, news, olds, stamps)


def _fold(known: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool) -> _Result | None:
    if known.kind == "struct":
        return _struct(known, rows, groups, before, per_row=per_row)
    if known.kind == "row":
        return _row(known, rows, groups, before, per_row=per_row)
    if known.kind in ("first", "last"):
        return _pick(known, rows, groups, before, per_row=per_row)
    return _arithmetic(known, rows, groups, before, per_row=per_row)


def _struct(known: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool) -> _Result | None:
    """Aggregate several at once: each part by itself, put together again."""
    absent = before.null_mask()
    parts: list[_Result] = []
    try:
        for name, part in known.parts:
            if absent.all():
                part_before = Column.nulls(len(groups))
            elif isinstance(before.series().dtype, pl.Struct) and name in before.series().struct.fields:
                part_before = Column.of_series(before.series().struct.field(name).alias(""))
            else:
                return None
            result = _fold(part, rows, groups, part_before, per_row=per_row)
            if result is None:
                return None
            parts.append(result)
        names = [name for name, _ in known.parts]
        final, news, olds = (
            None
            if columns[0] is None
            else pl.DataFrame([column.series().alias(n) for n, column in zip(names, columns, strict=True)]).to_struct(
                ""
            )
            for columns in zip(*parts, strict=True)
        )
    except SerializationError:
        return None
    assert final is not None  # noqa: S101 - every part has one
    if news is None or olds is None:
        return Column.of_series(final), None, None
    starting = (groups.segments.previous_rows() < 0) & absent[groups.codes]
    hidden = pl.DataFrame({"old": olds, "starting": starting})
    shown = hidden.select(pl.when(~pl.col("starting")).then(pl.col("old")).alias("")).to_series()
    return Column.of_series(final), Column.of_series(news), Column.of_series(shown)


def _row(known: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool) -> _Result | None:
    """Aggregate columns of rows side by side, each to a column of its own."""
    values, size = rows.values, len(groups)
    if isinstance(before, RowColumn):
        states: Sequence[Column] = before.shown()
    else:  # of few keys, or none
        rows_before, width = before.items(), range(len(known.parts))
        states = [Column.of_items([None if row is None else row[at] for row in rows_before]) for at in width]
    parts: list[_Result] = []
    for (number, part), state in zip(known.parts, states, strict=True):
        of_part = rows
        if number:
            if not isinstance(values, RowColumn) or values.absent is not None:
                return None
            column = _without_nulls(part, values.columns[int(number)])
            if column is None:
                return None
            of_part = rows.with_values(column)
        known_part = replace(part, kind="sum") if number and part.kind == "count" else part
        result = _arithmetic(known_part, of_part, groups, state, per_row=per_row)
        if result is None or not _within(part.limit, result[1] or result[0]):
            return None
        parts.append(result)
    final, news, olds = zip(*parts, strict=True)
    if not per_row:
        return RowColumn(final, size), None, None
    count = len(rows)
    return RowColumn(final, size), RowColumn(news, count), RowColumn(olds, count)


def _without_nulls(part: KnownAggregation, column: Column) -> Column | None:
    """The whole numbers that a part adds up, 0 for null, or a 1 for each value that it counts; None of other types."""
    if part.kind == "count":
        return Column.of_series(pl.Series("", (~column.null_mask()).astype(np.int64)))
    numbers = numbers_of(column)
    return None if numbers is None or numbers.dtype != np.int64 else Column.of_series(pl.Series("", numbers))


def _within(limit: int | None, results: Column) -> bool:
    if limit is None or not len(results):
        return True
    numbers = results.series().to_numpy()
    return -limit <= int(numbers.min()) and int(numbers.max()) <= limit


def _field(known: KnownAggregation, rows: Rows) -> Column | None:
    """Return the aggregated values as a column without nulls; None when there is no such column."""
    column = rows.values
    try:
        if known.field is not None:
            series = column.series()
            if not isinstance(series.dtype, pl.Struct) or known.field not in series.struct.fields:
                return None
            column = Column.of_series(series.struct.field(known.field).alias(""))
        return None if column.null_mask().any() else column
    except SerializationError:
        return None


def _side_by_side(names: list[str], columns: Sequence[Column | None]) -> pl.Series:
    series = [column.series().alias(n) for n, column in zip(names, columns, strict=True) if column is not None]
    return pl.DataFrame(series).to_struct("")


def _pick(known: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool) -> _Result | None:
    values = _field(known, rows)
    if values is None:
        return None
    size = len(groups)
    everything = Column.concat([before, values])
    absent = before.null_mask()
    arrival = np.where(absent, size + groups.first, np.arange(size))  # the row of "first" for each group
    if not per_row:
        chosen = size + groups.last_rows() if known.kind == "last" else arrival
        return everything.take(chosen), None, None
    previous = groups.segments.previous_rows()
    if known.kind == "last":
        chosen = size + np.arange(len(rows))
        old = np.where(previous < 0, groups.codes, size + previous)
    else:
        chosen = arrival[groups.codes]
        old = np.where((previous < 0) & absent[groups.codes], groups.codes, chosen)
    news = everything.take(chosen)
    return news.take(groups.last_rows()), news, everything.take(old)


def _arithmetic(
    known: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool
) -> _Result | None:
    absent = before.null_mask()
    numbers = summands(known, rows)
    stored = numbers_of(before)
    if numbers is None or stored is None:
        return None
    if absent.all():
        stored = stored.astype(numbers.dtype)
    if stored.dtype != numbers.dtype:
        return None
    floats = numbers.dtype == np.float64
    if known.start is not None:
        if type(known.start) is not (float if floats else int):
            return None
        stored = np.where(absent, known.start, stored)
    if known.kind in ("count", "sum"):
        if floats and known.start is None:
            stored = np.where(absent, -0.0, stored)  # to which any number can be added without a change
        add = _float_sums if floats else _sums
        final, running = add(numbers, groups, stored, per_row=per_row)
    else:
        if known.start is None:
            stored = np.where(absent, numbers[groups.first], stored)
        extremes = _float_extremes if floats else _extremes
        final, running = extremes(known.kind == "min", numbers, groups, stored, per_row=per_row)
    if final is None or (per_row and running is None):
        return None
    finals = Column.of_series(pl.Series("", final))
    if not per_row or running is None:
        return finals, None, None
    previous = groups.segments.previous_rows()
    is_first = previous < 0
    olds = pl.Series("", np.where(is_first, stored[groups.codes], running[previous]))
    starting = is_first & absent[groups.codes]
    if starting.any():
        olds = olds.set(pl.Series(starting), known.start)
    return finals, Column.of_series(pl.Series("", running)), Column.of_series(olds)


def summands(known: KnownAggregation, rows: Rows) -> NDArray[Any] | None:
    """Return the number that each row adds, or is compared by."""
    if known.kind == "count" and known.field is None:
        return np.ones(len(rows), np.int64)
    column = _field(known, rows)
    if column is None:
        return None
    return np.ones(len(rows), np.int64) if known.kind == "count" else numbers_of(column)


def numbers_of(column: Column) -> NDArray[Any] | None:
    """Return the column as int64 or float64, nulls as 0; None when it is of another type."""
    if not len(column):
        return np.zeros(0, np.int64)
    if not column.is_columnar:
        kinds = set(map(type, column.items()))
        if not (kinds <= {int, type(None)} or kinds <= {float, type(None)}):
            return None
    try:
        series = column.series()
    except SerializationError:
        return None
    if series.dtype == pl.Null:
        return np.zeros(len(series), np.int64)
    is_float = series.dtype == pl.Float64
    if not is_float and (not series.dtype.is_integer() or series.dtype in (pl.UInt64, pl.Int128)):
        return None
    if not is_float and series.dtype != pl.Int64:
        series = series.cast(pl.Int64)
    if series.null_count():  # by Arrow: Polars would run a query, which for a few rows takes longer than all else here
        without_nulls: NDArray[Any] = series.to_arrow().fill_null(0).to_numpy()
        return without_nulls
    return series.to_numpy()


def _float_sums(
    numbers: NDArray[Any], groups: RowGroups, stored: NDArray[Any], *, per_row: bool
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    if not per_row:
        final = stored.copy()
        np.add.at(final, groups.codes, numbers)  # one after the other
        return final, None
    if _negative_zero(numbers).any():
        return None, None  # Polars starts a sum from 0.0, so -0.0 would become 0.0
    running = _running(numbers, groups, stored, pl.col("number").cum_sum())
    return running[groups.last_rows()], running


def _float_extremes(
    smallest: bool,  # noqa: FBT001
    numbers: NDArray[Any],
    groups: RowGroups,
    stored: NDArray[Any],
    *,
    per_row: bool,
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    for each in (numbers, stored):
        if np.isnan(each).any() or _negative_zero(each).any():
            return None, None  # Python keeps the first of equal values
    if not per_row:
        final = stored.copy()
        (np.minimum if smallest else np.maximum).at(final, groups.codes, numbers)
        return final, None
    number = pl.col("number")
    running = _running(numbers, groups, stored, number.cum_min() if smallest else number.cum_max())
    return running[groups.last_rows()], running


def _negative_zero(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    is_negative_zero: NDArray[np.bool_] = np.signbit(numbers) & (numbers == 0)
    return is_negative_zero


def _running(numbers: NDArray[Any], groups: RowGroups, stored: NDArray[Any], cumulative: pl.Expr) -> NDArray[Any]:
    """Cumulate each group's stored number and then its rows; return the results of the rows."""
    codes = np.concatenate([np.arange(len(groups)), groups.codes])
    frame = pl.DataFrame({"group": codes, "number": np.concatenate([stored, numbers])})
    return frame.select(cumulative.over("group")).to_series().to_numpy()[len(groups) :]


def _sums(
    numbers: NDArray[np.int64], groups: RowGroups, stored: NDArray[np.int64], *, per_row: bool
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    largest = max(int(numbers.max()), -int(numbers.min()))
    reach = max(int(stored.max()), -int(stored.min()))
    if reach + largest * len(numbers) > _INT64_MAX:
        return None, None  # Python's integers grow; the serde then says that the value does not fit
    if per_row:
        running = groups.segments.running_sum(numbers, stored)
        return running[groups.last_rows()], running
    final = stored.copy()
    if largest == 1 and int(numbers.min()) == 1:
        final += groups.counts()
    else:
        np.add.at(final, groups.codes, numbers)
    return final, None


def _extremes(
    smallest: bool,  # noqa: FBT001
    numbers: NDArray[np.int64],
    groups: RowGroups,
    stored: NDArray[np.int64],
    *,
    per_row: bool,
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    if not per_row:
        final = stored.copy()
        (np.minimum if smallest else np.maximum).at(final, groups.codes, numbers)
        return final, None
    if not smallest:
        running = groups.segments.running_max(numbers, stored)
        return (None, None) if running is None else (running[groups.last_rows()], running)
    if int(numbers.min()) < -_INT64_MAX or int(stored.min()) < -_INT64_MAX:
        return None, None  # the one number that has no negative
    running = groups.segments.running_max(-numbers, -stored)
    return (None, None) if running is None else (-running[groups.last_rows()], -running)
