"""Aggregations that are known to be a count, a sum, a minimum and so on, so that they can run over whole columns.

Known are the built-in aggregators (`penstock.agg`), ``operator.add``, the built-ins ``min`` and ``max``, and lambdas
whose bytecode is that of ``lambda a, b: a + b``, ``lambda a, b: a`` or ``lambda a, b: b``.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from penstock.errors import SerializationError
from penstock.runtime.tables_groups import Groups
from penstock.runtime.tables_store import Fold
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.rows import Rows
    from penstock.topology.operations import Aggregation

__all__ = ["Known", "fold_known", "recognise"]

Kind = Literal["count", "sum", "min", "max", "first", "last"]
_INT64_MAX = (1 << 63) - 1
_SAMPLES: dict[str, Any] = {"sum": lambda a, b: a + b, "first": lambda a, b: a, "last": lambda a, b: b}  # noqa: ARG005


@dataclass(frozen=True, slots=True)
class Known:
    """What an aggregation is. ``field`` of the value is aggregated; None is the value itself.

    ``start`` is what the first row's old value shows, as Kafka shows the initializer's value there.
    """

    kind: Kind
    field: str | None = None
    start: int | None = None


def _signature(code: CodeType) -> tuple[Any, ...]:
    flags = code.co_flags & 0x0C  # *args and **kwargs
    return code.co_code, code.co_consts, code.co_names, code.co_argcount, code.co_freevars, flags


_BY_CODE = {_signature(fn.__code__): kind for kind, fn in _SAMPLES.items()}


def recognise(aggregation: Aggregation) -> Known | None:
    """What the aggregation is, if it is one that runs over columns."""
    if aggregation.kind == "count":
        return Known("count", start=0)
    if aggregation.aggregator is None:
        return None
    fn = aggregation.aggregator.fn
    kind = getattr(fn, "penstock_kind", None)
    if kind in ("count", "sum", "min", "max", "first", "last"):
        return Known(kind, getattr(fn, "field", None)) if _starts_empty(aggregation) else None
    if aggregation.kind != "reduce":
        return None
    if fn is operator.add:
        return Known("sum")
    if fn is min or fn is max:
        return Known(fn.__name__)  # type: ignore[arg-type]
    if isinstance(fn, FunctionType) and fn.__defaults__ is None:
        known = _BY_CODE.get(_signature(fn.__code__))
        return Known(known) if known else None  # type: ignore[arg-type]
    return None


def _starts_empty(aggregation: Aggregation) -> bool:
    return aggregation.kind == "reduce" or aggregation.initializer is None or aggregation.initializer() is None


def fold_known(
    known: Known, rows: Rows, groups: Groups, before: tuple[Column, NDArray[np.int64]], *, per_row: bool
) -> Fold | None:
    """Aggregates whole columns; None when these columns need the row loop."""
    stamps = groups.segments.running_max(rows.timestamps, before[1]) if per_row else None
    if per_row and stamps is None:
        return None
    if known.kind in ("first", "last"):
        result = _pick(known, rows, groups, before, per_row=per_row)
    else:
        result = _arithmetic(known, rows, groups, before, per_row=per_row)
    if result is None:
        return None
    final, news, olds = result
    last = groups.last_rows()
    if stamps is not None:
        final_stamps = stamps[last]
    else:
        final_stamps = before[1].copy()
        np.maximum.at(final_stamps, groups.codes, rows.timestamps)
    return Fold(final, final_stamps, last, None, news, olds, stamps)


def _field(known: Known, rows: Rows) -> Column | None:
    """What is aggregated, as a column without nulls; None when there is no such column."""
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


def _pick(
    known: Known, rows: Rows, groups: Groups, before: tuple[Column, NDArray[np.int64]], *, per_row: bool
) -> tuple[Column, Column | None, Column | None] | None:
    values = _field(known, rows)
    if values is None:
        return None
    size = len(groups)
    everything = Column.concat([before[0], values])
    absent = before[0].null_mask()
    arrival = np.where(absent, size + groups.first, np.arange(size))  # what "first" gives for each group
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
    known: Known, rows: Rows, groups: Groups, before: tuple[Column, NDArray[np.int64]], *, per_row: bool
) -> tuple[Column, Column | None, Column | None] | None:
    stored = _integers(before[0])
    if stored is None:
        return None
    absent = before[0].null_mask()
    numbers = _summands(known, rows)
    if numbers is None:
        return None
    if known.kind in ("count", "sum"):
        final, running = _sums(numbers, groups, stored, per_row=per_row)
    else:
        final, running = _extremes(
            known.kind == "min", numbers, groups, np.where(absent, numbers[groups.first], stored), per_row=per_row
        )
    if final is None:
        return None
    finals = Column.of_series(pl.Series("", final))
    if not per_row or running is None:
        return (finals, None, None) if not per_row else None
    previous = groups.segments.previous_rows()
    is_first = previous < 0
    old = np.where(is_first, stored[groups.codes], running[previous])
    olds = pl.Series("", old)
    starting = is_first & absent[groups.codes]
    if starting.any():
        olds = olds.set(pl.Series(starting), known.start)
    return finals, Column.of_series(pl.Series("", running)), Column.of_series(olds)


def _summands(known: Known, rows: Rows) -> NDArray[np.int64] | None:
    """What each row adds, or is compared by."""
    if known.kind == "count" and known.field is None:
        return np.ones(len(rows), np.int64)
    column = _field(known, rows)
    if column is None:
        return None
    return np.ones(len(rows), np.int64) if known.kind == "count" else _integers(column)


def _integers(column: Column) -> NDArray[np.int64] | None:
    """The column as int64, nulls as 0; None when it is of another type."""
    if not len(column):
        return np.zeros(0, np.int64)
    if not column.is_columnar:
        kinds = set(map(type, column.items()))
        if not kinds <= {int, type(None)}:
            return None
    try:
        series = column.series()
    except SerializationError:
        return None
    if series.dtype == pl.Null:
        return np.zeros(len(series), np.int64)
    if not series.dtype.is_integer() or series.dtype in (pl.UInt64, pl.Int128):
        return None
    return series.cast(pl.Int64).fill_null(0).to_numpy()


def _sums(
    numbers: NDArray[np.int64], groups: Groups, stored: NDArray[np.int64], *, per_row: bool
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
    groups: Groups,
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
