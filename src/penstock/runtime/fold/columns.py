"""Groups of the rows of a batch by key, and aggregations of whole columns by group, where the kind of them is known.

State is read and written once per key. Two keys are the same when their bytes are, as in Kafka; comparing values is
only a shortcut where it says the same.

Known are the built-in aggregators (`penstock.agg`), ``operator.add``, the built-ins ``min`` and ``max``, lambdas whose
bytecode is that of ``lambda a, b: a + b``, ``lambda a, b: a`` or ``lambda a, b: b``, and the Polars expressions that
say the same of ``aggregate`` and ``value``, or a field of the value. The results equal those of the row loop, value by
value: the sums of floats are added up in the order of the rows.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.api.groups.agg import BuiltInAggregator, MeanAggregator, SimpleAggregator, StructAggregator
from penstock.errors import SerializationError
from penstock.serde.column import Column, RowColumn
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.rows import Rows
    from penstock.serde.base import Serde
    from penstock.topology.operations.definitions import Aggregation

__all__ = [
    "FoldResult",
    "GroupFold",
    "KnownAggregation",
    "KnownAggregator",
    "RowGroups",
    "Segments",
    "few_by_row",
    "fold_known",
    "group_keys",
    "group_windows",
    "numbers_of",
    "recognise",
    "summands",
]

# Which aggregations are known

Kind = Literal["count", "sum", "min", "max", "first", "last", "struct", "row"]
_NUMBERS = frozenset({"count", "sum", "min", "max"})
_SAMPLES: dict[str, Any] = {"sum": lambda a, b: a + b, "first": lambda a, b: a, "last": lambda a, b: b}  # noqa: ARG005


@dataclass(frozen=True, slots=True)
class KnownAggregation:
    """The kind of an aggregation. ``field`` of the value is aggregated; None is the value itself.

    ``start`` is the initial aggregate, which the first row's old value shows, as Kafka shows the initializer's value
    there;
    None: from the first value. ``parts`` are those of a struct, or of a row: there the names are places in the row that
    is aggregated, or nothing, and nulls are not aggregated. ``limit`` is the largest size of a result of whole numbers;
    beyond it the row loop says what happens.
    """

    kind: Kind
    field: str | None = None
    start: int | float | None = None
    parts: tuple[tuple[str, KnownAggregation], ...] = ()
    limit: int | None = None


class KnownAggregator:
    """An aggregator that says itself which aggregation it is: the base of those of SQL.

    Attributes:
        known: The aggregation; None: it runs by rows only.
    """

    known: KnownAggregation | None = None


def _signature(code: CodeType) -> tuple[Any, ...]:
    flags = code.co_flags & 0x0C  # *args and **kwargs
    return code.co_code, code.co_consts, code.co_names, code.co_argcount, code.co_freevars, flags


_BY_CODE = {_signature(fn.__code__): cast("Kind", kind) for kind, fn in _SAMPLES.items()}


def recognise(aggregation: Aggregation) -> KnownAggregation | None:
    """Return the kind of the aggregation, if it is one that runs over columns."""
    if aggregation.kind == "count":
        return KnownAggregation("count", start=0)
    if aggregation.aggregator is None:
        return None
    fn = aggregation.aggregator.fn
    if isinstance(fn, KnownAggregator):
        return fn.known
    if isinstance(fn, BuiltInAggregator):
        return _of_builtin(fn) if _starts_from(aggregation) is None else None
    if aggregation.aggregator.is_expression:
        return _of_expression(fn, aggregation)
    if aggregation.kind != "reduce":
        return None
    if fn is operator.add:
        return KnownAggregation("sum")
    if fn is min or fn is max:
        return KnownAggregation(fn.__name__)  # type: ignore[arg-type]
    if isinstance(fn, FunctionType) and fn.__defaults__ is None:
        kind = _BY_CODE.get(_signature(fn.__code__))
        return KnownAggregation(kind) if kind else None
    return None


def few_by_row(aggregation: Aggregation, recognised: KnownAggregation | None) -> bool:
    """Return whether a few rows take less time one by one than by the columns of the known aggregation."""
    function = aggregation.aggregator
    return (
        recognised is not None and recognised.kind in _NUMBERS and not (function is not None and function.is_expression)
    )


def one_by_row(aggregation: Aggregation, recognised: KnownAggregation | None) -> bool:
    """Return whether a single row may be folded by a call: nothing of the aggregation needs a column."""
    function = aggregation.aggregator
    is_expression = function is not None and function.is_expression
    return not is_expression and (recognised is None or recognised.kind in _NUMBERS)


def _of_builtin(fn: BuiltInAggregator) -> KnownAggregation | None:
    if isinstance(fn, SimpleAggregator):
        return KnownAggregation(fn.penstock_kind, fn.field)
    kept = fn.kept if isinstance(fn, MeanAggregator) else fn
    if not isinstance(kept, StructAggregator):
        return None
    parts = [(name, _of_builtin(part)) for name, part in kept.parts]
    recognised = tuple((name, part) for name, part in parts if part is not None)
    return KnownAggregation("struct", parts=recognised) if len(recognised) == len(parts) else None


def _of_expression(fn: pl.Expr, aggregation: Aggregation) -> KnownAggregation | None:
    """Recognise a sum, minimum or maximum of ``aggregate`` and one other column, or one of the two alone."""
    start = _starts_from(aggregation)
    if not (start is None or type(start) in (int, float)) or not isinstance(fn, pl.Expr):
        return None
    if aggregation.kind != "reduce" and start is None:
        return None  # an expression over a null aggregate is null
    others = set(fn.meta.root_names()) - {"aggregate"}
    if len(others) > 1 or others & {"key", "timestamp"}:
        return None
    name = next(iter(others), "value")
    so_far, value = pl.col("aggregate"), pl.col(name)
    templates: tuple[tuple[Kind, pl.Expr], ...] = (
        ("sum", so_far + value),
        ("sum", value + so_far),
        ("min", pl.min_horizontal(so_far, value)),
        ("min", pl.min_horizontal(value, so_far)),
        ("max", pl.max_horizontal(so_far, value)),
        ("max", pl.max_horizontal(value, so_far)),
        ("last", value),
    )
    kind = next((kind for kind, template in templates if fn.meta.eq(template)), None)
    if kind is None or (name != "value" and aggregation.kind == "reduce") or (kind == "last" and start is not None):
        return None
    return KnownAggregation(kind, None if name == "value" else name, start)


def _starts_from(aggregation: Aggregation) -> Any:
    return None if aggregation.kind == "reduce" or aggregation.initializer is None else aggregation.initializer()


# Groups

_FEW = 64
_PLAIN_TYPES = ({str}, {int}, {bytes}, {bool}, {UUID})


@dataclass(frozen=True)
class RowGroups:
    """Rows by key: ``codes`` numbers each row's group, groups count up in order of first appearance."""

    codes: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of_codes(cls, codes: NDArray[np.int64]) -> RowGroups:
        """Return the groups of codes that already count up from 0 in order of first appearance."""
        highest = np.maximum.accumulate(codes) if len(codes) else codes
        return cls(codes, np.flatnonzero(np.diff(highest, prepend=-1) > 0))

    def __len__(self) -> int:
        return len(self.first)

    def last_rows(self) -> NDArray[np.int64]:
        """Return the last row of each group."""
        if len(self.codes) == len(self):  # each row is a group
            return self.first
        last = np.full(len(self), -1, np.int64)
        last[self.codes] = np.arange(len(self.codes))
        return last

    def counts(self) -> NDArray[np.int64]:
        """Return the number of rows of each group."""
        return np.bincount(self.codes, minlength=len(self))

    @cached_property
    def segments(self) -> Segments:
        """The rows sorted by group, those of one group in their own order."""
        order = np.argsort(self.codes, kind="stable")
        starts = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.counts(), out=starts[1:])
        return Segments(order, self.codes[order], starts[:-1])


@dataclass(frozen=True)
class Segments:
    """Rows sorted by group: ``order`` are their positions before, ``starts`` the beginnings of the groups."""

    order: NDArray[np.int64]
    codes: NDArray[np.int64]
    starts: NDArray[np.int64]

    def scatter(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return values that stand in sorted order, put back into the order of the rows."""
        out = np.empty_like(values)
        out[self.order] = values
        return out

    def previous_rows(self) -> NDArray[np.int64]:
        """Return for each row the row before it in its group, -1 for the first."""
        before = np.empty_like(self.order)
        before[1:] = self.order[:-1]
        before[self.starts] = -1
        return self.scatter(before)

    def occurrence(self) -> NDArray[np.int64]:
        """Return for each row how many rows of its group come before it."""
        return self.scatter(np.arange(len(self.order)) - self.starts[self.codes])

    def running_sum(self, values: NDArray[np.int64], initial: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum over the group's rows up to each row, from the group's initial value; integers only."""
        sums = np.cumsum(values[self.order])
        base = np.concatenate([np.zeros(1, np.int64), sums])[self.starts]
        return self.scatter(sums + (initial - base)[self.codes])

    def running_max(self, values: NDArray[np.int64], initial: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the same for the largest; None when the numbers are too far apart for the method."""
        low = min(int(values.min()), int(initial.min()))
        reach = max(int(values.max()), int(initial.max())) - low + 1
        if reach * (len(self.starts) + 1) >= 1 << 62:
            return None
        lifted = values[self.order] - low
        lifted[self.starts] = np.maximum(lifted[self.starts], initial - low)
        shift = self.codes * reach  # each group's numbers lie above all of the group before
        return self.scatter(np.maximum.accumulate(lifted + shift) - shift + low)


def group_keys(keys: Column, serde: Serde[Any]) -> RowGroups:
    """Group rows by key; no key is null. ``serde`` encodes keys that Python would compare differently."""
    if isinstance(keys, WindowedColumn):
        return _group_windows(keys, serde)
    if isinstance(keys, RowColumn):
        return _group_array(serde.encode(keys))
    if keys.is_columnar:
        dtype = keys.series().dtype
        if dtype in (pl.String, pl.Binary, pl.Boolean) or dtype.is_integer():
            return _few_groups(keys.items()) if len(keys) <= _FEW else _group_array(keys.series().to_arrow())
    items = keys.items()
    if set(map(type, items)) in _PLAIN_TYPES:
        if len(items) <= _FEW:
            return _few_groups(items)
        numbers = dict(zip(dict.fromkeys(items), count(), strict=False))
        return RowGroups.of_codes(np.fromiter(map(numbers.__getitem__, items), np.int64, len(items)))
    return _group_array(serde.encode(keys))


def _few_groups(items: Sequence[Any]) -> RowGroups:
    """Group a few items that can be keys of a dict, without the time that NumPy's functions take to begin."""
    if len(items) == 1:
        return _ONE_ROW
    numbers: dict[Any, int] = {}
    firsts: list[int] = []
    codes = []
    for at, item in enumerate(items):
        codes.append(numbers.setdefault(item, len(numbers)))
        if len(numbers) > len(firsts):
            firsts.append(at)
    return RowGroups(np.array(codes, np.int64), np.array(firsts, np.int64))


def _group_array(array: pa.Array) -> RowGroups:
    codes = array.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return RowGroups.of_codes(codes.astype(np.int64))


def _group_windows(keys: WindowedColumn, serde: Serde[Any]) -> RowGroups:
    windowed = serde.name.startswith(("windowed<", "session<"))  # that of a window store is the inner one already
    codes = group_keys(keys.keys, getattr(serde, "inner", serde) if windowed else serde).codes
    lengths = keys.ends - keys.starts
    same_length = len(lengths) > 0 and lengths.min() == lengths.max()
    return group_windows(codes, keys.starts, None if same_length else keys.ends)


def group_windows(codes: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64] | None) -> RowGroups:
    """Group rows by a number (of the key, say), a start, and an end where equal starts may have different ends."""
    if len(codes) <= _FEW:
        windows = (starts,) if ends is None else (starts, ends)
        return _few_groups(list(zip(codes.tolist(), *(each.tolist() for each in windows), strict=True)))
    for times in (starts,) if ends is None else (starts, ends):
        if not len(times):
            break
        low = times.min()
        reach, numbers = int(times.max()) - int(low) + 1, times - low
        if reach * (int(codes.max()) + 1) >= 1 << 62:
            distinct, numbers = np.unique(times, return_inverse=True)
            reach = len(distinct)
            codes = np.unique(codes, return_inverse=True)[1]
        codes = codes * reach + numbers
    return _group_array(pa.array(codes))


# Aggregates of groups


@dataclass(frozen=True)
class FoldResult:
    """The changes of a batch to a table, row by row and group by group.

    Attributes:
        final: The value of each group after the batch.
        final_stamps: The timestamps of the groups' values after the batch.
        last: The last row that changed each group; -1 when none did.
        changed_rows: The rows that made a change; None when all did.
        news: The new value of each such row. Rows' values may be left out (None) when no reader needs them.
        olds: The old value of each such row.
        stamps: The result's timestamp of each such row.
    """

    final: Column
    final_stamps: NDArray[np.int64]
    last: NDArray[np.int64]
    changed_rows: NDArray[np.int64] | None = None
    news: Column | None = None
    olds: Column | None = None
    stamps: NDArray[np.int64] | None = None


_ONE_ROW = RowGroups(np.zeros(1, np.int64), np.zeros(1, np.int64))


class GroupFold(Protocol):
    """A function that folds rows by key into the values and timestamps that their groups had before."""

    def __call__(self, rows: Rows, groups: RowGroups, before: tuple[Column, NDArray[np.int64]], /) -> FoldResult: ...


_INT64_MAX = (1 << 63) - 1
_Result = tuple[Column, Column | None, Column | None]  # final; news and olds where each row's are asked for


def fold_known(
    aggregation: KnownAggregation,
    rows: Rows,
    groups: RowGroups,
    before: tuple[Column, NDArray[np.int64]],
    *,
    per_row: bool,
) -> FoldResult | None:
    """Aggregates whole columns; None when these columns need the row loop."""
    stamps = groups.segments.running_max(rows.timestamps, before[1]) if per_row else None
    if per_row and stamps is None:
        return None
    result = _fold(aggregation, rows, groups, before[0], per_row=per_row)
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


def _fold(
    aggregation: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool
) -> _Result | None:
    if aggregation.kind == "struct":
        return _struct(aggregation, rows, groups, before, per_row=per_row)
    if aggregation.kind == "row":
        return _row(aggregation, rows, groups, before, per_row=per_row)
    if aggregation.kind in ("first", "last"):
        return _pick(aggregation, rows, groups, before, per_row=per_row)
    return _arithmetic(aggregation, rows, groups, before, per_row=per_row)


def _struct(
    aggregation: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool
) -> _Result | None:
    """Aggregate several at once: each part by itself, put together again."""
    absent = before.null_mask()
    parts: list[_Result] = []
    try:
        for name, part in aggregation.parts:
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
        names = [name for name, _ in aggregation.parts]
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


def _row(
    aggregation: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool
) -> _Result | None:
    """Aggregate columns of rows side by side, each to a column of its own."""
    values, size = rows.values, len(groups)
    if isinstance(before, RowColumn):
        states: Sequence[Column] = before.shown()
    else:  # of few keys, or none
        rows_before, width = before.items(), range(len(aggregation.parts))
        states = [Column.of_items([None if row is None else row[at] for row in rows_before]) for at in width]
    parts: list[_Result] = []
    for (number, part), state in zip(aggregation.parts, states, strict=True):
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
    """Return the whole numbers that a part adds up, 0 for null, or a 1 for each counted value; None of other types."""
    if part.kind == "count":
        return Column.of_series(pl.Series("", (~column.null_mask()).astype(np.int64)))
    numbers = numbers_of(column)
    return None if numbers is None or numbers.dtype != np.int64 else Column.of_series(pl.Series("", numbers))


def _within(limit: int | None, results: Column) -> bool:
    if limit is None or not len(results):
        return True
    numbers = results.series().to_numpy()
    return -limit <= int(numbers.min()) and int(numbers.max()) <= limit


def _field(aggregation: KnownAggregation, rows: Rows) -> Column | None:
    """Return the aggregated values as a column without nulls; None when there is no such column."""
    column = rows.values
    try:
        if aggregation.field is not None:
            series = column.series()
            if not isinstance(series.dtype, pl.Struct) or aggregation.field not in series.struct.fields:
                return None
            column = Column.of_series(series.struct.field(aggregation.field).alias(""))
        return None if column.null_mask().any() else column
    except SerializationError:
        return None


def _side_by_side(names: list[str], columns: Sequence[Column | None]) -> pl.Series:
    series = [column.series().alias(n) for n, column in zip(names, columns, strict=True) if column is not None]
    return pl.DataFrame(series).to_struct("")


def _pick(
    aggregation: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool
) -> _Result | None:
    values = _field(aggregation, rows)
    if values is None:
        return None
    size = len(groups)
    everything = Column.concat([before, values])
    absent = before.null_mask()
    arrival = np.where(absent, size + groups.first, np.arange(size))  # the row of "first" for each group
    if not per_row:
        chosen = size + groups.last_rows() if aggregation.kind == "last" else arrival
        return everything.take(chosen), None, None
    previous = groups.segments.previous_rows()
    if aggregation.kind == "last":
        chosen = size + np.arange(len(rows))
        old = np.where(previous < 0, groups.codes, size + previous)
    else:
        chosen = arrival[groups.codes]
        old = np.where((previous < 0) & absent[groups.codes], groups.codes, chosen)
    news = everything.take(chosen)
    return news.take(groups.last_rows()), news, everything.take(old)


def _arithmetic(
    aggregation: KnownAggregation, rows: Rows, groups: RowGroups, before: Column, *, per_row: bool
) -> _Result | None:
    absent = before.null_mask()
    numbers = summands(aggregation, rows)
    stored = numbers_of(before)
    if numbers is None or stored is None:
        return None
    if absent.all():
        stored = stored.astype(numbers.dtype)
    if stored.dtype != numbers.dtype:
        return None
    floats = numbers.dtype == np.float64
    if aggregation.start is not None:
        if type(aggregation.start) is not (float if floats else int):
            return None
        stored = np.where(absent, aggregation.start, stored)
    if aggregation.kind in ("count", "sum"):
        if floats and aggregation.start is None:
            stored = np.where(absent, -0.0, stored)  # to which any number can be added without a change
        add = _float_sums if floats else _sums
        final, running = add(numbers, groups, stored, per_row=per_row)
    else:
        if aggregation.start is None:
            stored = np.where(absent, numbers[groups.first], stored)
        extremes = _float_extremes if floats else _extremes
        final, running = extremes(aggregation.kind == "min", numbers, groups, stored, per_row=per_row)
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
        olds = olds.set(pl.Series(starting), aggregation.start)
    return finals, Column.of_series(pl.Series("", running)), Column.of_series(olds)


def summands(aggregation: KnownAggregation, rows: Rows) -> NDArray[Any] | None:
    """Return the number that each row adds, or is compared by."""
    if aggregation.kind == "count" and aggregation.field is None:
        return np.ones(len(rows), np.int64)
    column = _field(aggregation, rows)
    if column is None:
        return None
    return np.ones(len(rows), np.int64) if aggregation.kind == "count" else numbers_of(column)


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
