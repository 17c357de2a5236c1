"""Users' functions over the rows of a batch, and the operators that are no more: filters, maps, branches, peeks.

A function is called once per row, and one bad record does not lose the good ones around it. A Polars expression sees
the columns ``key``, ``timestamp``, ``value`` and, when the value is a struct (or a dict), its fields. A field named
``key``, ``timestamp`` or ``value`` is reached as ``pl.col("value").struct.field(...)``. A literal counts for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from penstock.errors import ProcessingError
from penstock.runtime.operator import Operator, RowStep
from penstock.runtime.rows import Row, Rows
from penstock.serde.column import Column
from penstock.topology.operations.definitions import (
    Branch,
    DropNullKeys,
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    MapPairs,
    MapValues,
    Operation,
    PassThrough,
    Peek,
    SelectKey,
)
from penstock.topology.operations.functions import is_expression

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.functions import Function
    from penstock.topology.topology import Topology

__all__ = [
    "FACTORIES",
    "FAILED",
    "apply",
    "call",
    "failures_removed",
    "frame",
    "gather",
    "join_rows",
    "join_values",
    "pair_of",
    "row_call",
    "row_join",
    "select",
    "truth",
]

# Expressions

_RECORD_COLUMNS = ("key", "timestamp", "value")
_LIKELY_TYPES = (pl.String, pl.Int64, pl.Float64, pl.Boolean, pl.Binary, pl.List(pl.String))


def frame(rows: Rows, names: set[str] | None) -> pl.DataFrame:
    """Return the rows as a data frame with the columns of these names (None: all there are)."""
    columns: list[pl.Series] = []
    if names is None or "key" in names:
        columns.append(rows.keys.series().alias("key"))
    if names is None or "timestamp" in names:
        columns.append(pl.Series("timestamp", rows.timestamps, dtype=pl.Int64))
    fields = None if names is None else names.difference(_RECORD_COLUMNS)
    dicts = _dicts(rows.values) if fields and names is not None and "value" not in names else None
    if dicts is not None and fields:  # only the fields asked for: the rest may have no column type
        columns += [_looked_up(dicts, name) for name in sorted(fields)]
    elif names is None or "value" in names or fields:
        values = rows.values.series().alias("value")
        if names is None or "value" in names:
            columns.append(values)
        columns += _fields(values, fields, dynamic=rows.values.is_loose)
    if not columns:
        columns.append(pl.Series("timestamp", rows.timestamps, dtype=pl.Int64))
    return pl.DataFrame(columns)


def _dicts(values: Column) -> list[dict[str, Any] | None] | None:
    """Return the values, if they are Python dicts and not a column yet."""
    if type(values) is not Column or values.is_columnar or not set(map(type, values.items())) <= {dict, type(None)}:
        return None
    return values.items()


def _looked_up(dicts: list[dict[str, Any] | None], name: str) -> pl.Series:
    return Column.of_items([None if one is None else one.get(name) for one in dicts]).series().alias(name)


def _fields(values: pl.Series, names: set[str] | None, *, dynamic: bool) -> list[pl.Series]:
    """Return the struct's fields; those that no dict of this batch happens to have are null."""
    present = values.dtype.to_schema() if isinstance(values.dtype, pl.Struct) else {}
    field_names = [n for n in present if n not in _RECORD_COLUMNS] if names is None else sorted(names)
    series = [values.struct.field(n) for n in field_names if n in present]
    if dynamic or values.dtype == pl.Null:
        series += [pl.Series(n, [None] * len(values)) for n in field_names if n not in present]
    return series


def select(table: pl.DataFrame, expression: pl.Expr) -> pl.DataFrame:
    """Apply the expression to the columns.

    A column that happens to have only nulls in this batch has no type, and then ``str.len_chars()`` and its like fail.
    They are tried with the usual types in its place: of nulls they all make the same.
    """
    try:
        return table.select(expression)
    except pl.exceptions.PolarsError:
        untyped = [name for name, dtype in table.schema.items() if dtype == pl.Null]
        if not untyped:
            raise
        for dtype in _LIKELY_TYPES:
            with suppress(pl.exceptions.PolarsError):
                return table.with_columns(pl.col(untyped).cast(dtype)).select(expression)
        raise


def evaluate(function: Function, rows: Rows, node: str) -> pl.Series:
    """Return the expression's result for each row.

    Raises:
        ProcessingError: The expression does not return one value per row.
        Exception: Whatever Polars raises; the caller names the operator.
    """
    expression: pl.Expr = function.fn
    roots = expression.meta.root_names()
    patterns = any(not name or (name.startswith("^") and name.endswith("$")) for name in roots)
    names = None if patterns or expression.meta.has_multiple_outputs() else set(roots)
    result = select(frame(rows, names), expression)
    if result.width != 1:
        raise ProcessingError(
            f"{node}: the expression at {function.file}:{function.line} returns {result.width} columns, not one",
            hint="Combine them with pl.struct(...).",
            node=node,
            file=function.file,
            line=function.line,
        )
    series = result.to_series()
    if len(series) == len(rows):
        return series
    if len(series) == 1 and not roots:
        return series.new_from_index(0, len(rows))
    raise ProcessingError(
        f"{node}: the expression at {function.file}:{function.line} made {len(series)} values of {len(rows)} records",
        hint="An expression works record by record; aggregate with group_by() and count(), reduce() or aggregate().",
        node=node,
        file=function.file,
        line=function.line,
    )


# Calls of functions

_STOPPED = "the function raised StopIteration"
OnError = Callable[[int, Exception], bool]  # returns whether the rows that follow fall with this one


def apply(function: Function, rows: Rows, node: str, context: TaskContext) -> tuple[Column, NDArray[np.int64] | None]:
    """Return the function's result for each row, by expression, over whole columns, or by calls.

    Returns:
        The results, and the positions of the rows that have one (None: all). Rows whose call raised are reported to the
        context and left out of both.
    """

    def failed_at(row: int, error: Exception) -> bool:
        return context.failed(node, function, rows, row, error)

    if function.is_expression:
        whole = range(len(rows))
        return evaluate_by_halves(
            lambda part: evaluate(function, part_of(rows, part), node), whole, failed_at, fatal=(ProcessingError,)
        )
    if function.takes_columns:
        column = function.over_columns(*((rows.values,) if function.arity == 1 else (rows.keys, rows.values)))
        if column is not None:
            return column, None
    results, failed = call(function, rows, failed_at)
    if results and is_expression(results[0]):
        raise returned_expression(function, node)
    return Column.of_items(results), failures_removed(failed, len(rows))


FAILED: Any = object()  # in place of the result of a call that raised
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})  # types that are no expression


def row_call(function: Function, node: str, context: TaskContext) -> Callable[[Row, Any], Any] | None:
    """Return the call of a function with the key of a row by itself and a value, as `apply` calls it.

    None: it is an expression. The result is `FAILED` where the call raised, which has been reported then.
    """
    if function.is_expression:
        return None
    if function.takes_columns:

        def call_column(row: Row, value: Any) -> Any:
            with context.batch_of(rows := row.rows(context.step)):
                results, kept = apply(function, rows.with_values(Column.of_items([value])), node, context)
            return results.items()[0] if kept is None else FAILED

        return call_column
    fn = function.fn
    return _reporting(fn if function.arity != 1 else lambda _key, value: fn(value), function, node, context)


def row_join(joiner: Function, node: str, context: TaskContext) -> Callable[[Row, Any, Any, Any], Any] | None:
    """Return the call of a joiner with a row by itself, the other side's key, and both values: see `join_values`.

    None, and the result: as of `row_call`.
    """
    if joiner.is_expression:
        return None
    if joiner.takes_columns:

        def join_columns(row: Row, other_key: Any, left: Any, right: Any) -> Any:
            keys, lefts, rights = (Column.of_items([each]) for each in (other_key, left, right))
            mapped = keys if joiner.arity == 4 else None
            with context.batch_of(rows := row.rows(context.step)):
                results, kept = join_values(joiner, rows.with_values(lefts), rights, node, context, mapped)
            return results.items()[0] if kept is None else FAILED

        return join_columns
    fn, arity = joiner.fn, joiner.arity
    if arity == 4:
        return _reporting(fn, joiner, node, context)
    if arity == 3:
        return _reporting(lambda key, _other_key, left, right: fn(key, left, right), joiner, node, context)
    return _reporting(lambda _key, _other_key, left, right: fn(left, right), joiner, node, context)


def _reporting(call: Callable[..., Any], function: Function, node: str, context: TaskContext) -> Callable[..., Any]:
    """Return the call with a row's key and other arguments, which reports what it raises, and returns `FAILED` then."""

    def failed(row: Row, error: Exception) -> Any:
        context.failed(node, function, row.rows(context.step), 0, error)
        return FAILED

    def call_with(row: Row, *arguments: Any) -> Any:
        try:
            result = call(row.key, *arguments)
        except StopIteration:
            return failed(row, RuntimeError(_STOPPED))
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            return failed(row, error)
        if type(result) not in _PLAIN and is_expression(result):
            raise returned_expression(function, node)
        return result

    return call_with


def returned_expression(function: Function, node: str) -> ProcessingError:
    """Return the error for a function whose result is an expression, not a value."""
    return ProcessingError(
        f"{node}: {function.location} returned a Polars expression instead of a value",
        hint='Pass the expression itself, without a function around it: filter(pl.col("a") > 1).',
        node=node,
        file=function.file,
        line=function.line,
    )


def call(function: Function, rows: Rows, on_error: OnError) -> tuple[list[Any], list[int]]:
    """Call ``fn(value)`` or ``fn(key, value)`` for each row; return the results and the rows that raised."""
    fn = function.fn
    values = iter(rows.values.items())
    calls: Iterator[Any] = map(fn, values) if function.arity == 1 else map(fn, iter(rows.keys.items()), values)
    return gather(calls, len(rows), on_error)


def gather(calls: Iterator[Any], total: int, on_error: OnError) -> tuple[list[Any], list[int]]:
    """Return the results of all calls that such a ``map`` over ``total`` rows makes, and the rows that raised."""
    results: list[Any] = []
    failed: list[int] = []
    while True:
        try:
            results.extend(calls)  # keeps its results when a call raises, and the iterators stand behind that row
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            raised = error
        else:
            # A StopIteration that leaves a user's function ends `map` silently.
            raised = RuntimeError(_STOPPED)
        row = len(results) + len(failed)
        if row == total:
            return results, failed
        if on_error(row, raised):
            return results, [*failed, *range(row, total)]
        failed.append(row)


def failures_removed(failed: list[int], length: int) -> NDArray[np.int64] | None:
    """Return the positions that are not in ``failed``; None when nothing failed."""
    if not failed:
        return None
    mask = np.ones(length, np.bool_)
    mask[failed] = False
    return np.flatnonzero(mask)


def evaluate_by_halves(
    evaluate: Callable[[range], pl.Series], part: range, on_error: OnError, *, fatal: tuple[type[Exception], ...] = ()
) -> tuple[Column, NDArray[np.int64] | None]:
    """Evaluate an expression over some rows; if that raises, over halves, until only the bad rows are left out.

    Args:
        evaluate: Returns the results of the rows in a range.
        part: The rows, not empty.
        on_error: Called with each bad row and its error.
        fatal: Errors of the expression itself, which are raised.

    Returns:
        The results, and the rows that have one (None: all).
    """
    try:
        return Column.of_series(evaluate(part)), None
    except fatal:
        raise
    except Exception as error:  # noqa: BLE001 - Polars raises many kinds
        if len(part) == 1:
            on_error(part.start, error)
            return Column.nulls(0), np.empty(0, np.int64)
    results: list[Column] = []
    kept: list[NDArray[np.int64]] = []
    middle = part.start + len(part) // 2
    for half in (range(part.start, middle), range(middle, part.stop)):
        column, good = evaluate_by_halves(evaluate, half, on_error, fatal=fatal)
        results.append(column)
        kept.append(np.arange(half.start, half.stop) if good is None else good)
    full = [column for column in results if len(column)] or results[:1]
    return Column.concat(full), np.concatenate(kept)


def part_of(rows: Rows, part: range) -> Rows:
    """Return the rows of a range; ``rows`` itself for all of them."""
    return rows if len(part) == len(rows) else rows.take(np.arange(part.start, part.stop))


# Joiners


def join_rows(
    joiner: Function, rows: Rows, right: Column, node: str, context: TaskContext, mapped: Column | None = None
) -> Rows:
    """Return the rows, whose values are the left side, with the joiner's results as values; see `join_values`."""
    results, kept = join_values(joiner, rows, right, node, context, mapped)
    return (rows if kept is None else rows.take(kept)).with_values(results)


def join_values(
    joiner: Function, rows: Rows, right: Column, node: str, context: TaskContext, mapped: Column | None = None
) -> tuple[Column, NDArray[np.int64] | None]:
    """Return the joiner's result for each row, whose value is the left side.

    An expression sees ``key``, ``timestamp``, ``left`` and ``right``, and the fields of both sides: a field that both
    have is the left one's; the right one's is ``<field>_right`` then, as in Polars' own joins.

    Args:
        joiner: The joiner.
        rows: The rows.
        right: The values of the other side.
        node: The node of the join.
        context: The task.
        mapped: The keys of the other side, for a joiner that gets them behind the rows' own keys.

    Returns:
        The results, and the positions of the rows that have one (None: all). Rows whose call raised are reported to the
        context and left out of both.
    """
    if not len(rows):
        return Column.nulls(0), None

    def failed_at(row: int, error: Exception) -> bool:
        return context.failed(node, joiner, rows, row, error)

    if joiner.is_expression:

        def evaluate(part: range) -> pl.Series:
            others = right if len(part) == len(right) else right.take(np.arange(part.start, part.stop))
            return _evaluate(joiner, part_of(rows, part), others, node)

        return evaluate_by_halves(evaluate, range(len(rows)), failed_at)
    column = (
        None
        if mapped is not None
        else joiner.over_columns(*((rows.keys,) if joiner.arity == 3 else ()), rows.values, right)
    )
    if column is not None:
        return column, None
    fn: Callable[..., Any] = joiner.fn
    values = iter(rows.values.items()), iter(right.items())
    if mapped is not None:
        calls = map(fn, iter(rows.keys.items()), iter(mapped.items()), *values)
    else:
        calls = map(fn, iter(rows.keys.items()), *values) if joiner.arity == 3 else map(fn, *values)
    results, failed = gather(calls, len(rows), failed_at)
    if results and is_expression(results[0]):
        raise returned_expression(joiner, node)
    return Column.of_items(results), failures_removed(failed, len(rows))


def _evaluate(joiner: Function, rows: Rows, right: Column, node: str) -> pl.Series:
    table = frame(rows, None)
    lefts = table.get_column("value").alias("left")
    rights = right.series().alias("right")
    columns = [c for c in table.get_columns() if c.name not in ("value", "left", "right")]
    taken = {c.name for c in columns}
    if isinstance(rights.dtype, pl.Struct):
        columns += [
            rights.struct.field(name).alias(f"{name}_right" if name in taken else name)
            for name in rights.struct.fields
            if name not in ("key", "timestamp", "value", "left", "right")
        ]
    if pl.Null in (lefts.dtype, rights.dtype):  # no row of that side has a value, so its fields are unknown
        column_names = {"left", "right", *(c.name for c in columns)}
        columns += [pl.Series(n, [None] * len(rows)) for n in sorted({*joiner.fn.meta.root_names()} - column_names)]
    result = pl.DataFrame([*columns, lefts, rights]).select(joiner.fn)
    if result.width != 1 or len(result) != len(rows):
        raise ProcessingError(
            f"{node}: the joiner at {joiner.file}:{joiner.line} must return one value per record",
            hint="Combine several with pl.struct(...).",
            node=node,
        )
    return result.to_series()


# Operators


def truth(column: Column) -> NDArray[np.bool_]:
    """Return a predicate's results as a mask; null counts as false."""
    if column.is_columnar:
        series = column.series()
        if series.dtype == pl.Boolean:
            return series.fill_null(value=False).to_numpy()
    return np.fromiter(map(bool, column.items()), np.bool_, len(column))


class _Base(Operator):
    """The base of the operators here: node and context."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        self._name = node.name
        self._context = context

    def _apply(self, function: Function, rows: Rows) -> tuple[Rows, Column]:
        """Return the rows whose call succeeded, and their results."""
        column, kept = apply(function, rows, self._name, self._context)
        return (rows if kept is None else rows.take(kept)), column


class _PassThrough(_Base):
    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        return rows

    def row_step(self) -> RowStep:
        return lambda row: row


class _DropNullKeys(_Base):
    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        return rows.filter(~rows.keys.null_mask())

    def row_step(self) -> RowStep:
        return lambda row: None if row.key is None else row


class _Filter(_Base):
    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._operation = cast("Filter", node.operation)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, verdicts = self._apply(self._operation.predicate, rows)
        mask = truth(verdicts)
        return rows.filter(~mask if self._operation.negate else mask)

    def row_step(self) -> RowStep | None:
        called = row_call(self._operation.predicate, self._name, self._context)
        if called is None:
            return None
        negate = self._operation.negate

        def step(row: Row) -> Row | None:
            verdict = called(row, row.value)
            return None if verdict is FAILED or bool(verdict) == negate else row

        return step


class _MapValues(_Base):
    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._fn = cast("MapValues", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, values = self._apply(self._fn, rows)
        return rows.with_values(values)

    def row_step(self) -> RowStep | None:
        called = row_call(self._fn, self._name, self._context)
        if called is None:
            return None

        def step(row: Row) -> Row | None:
            value = called(row, row.value)
            return None if value is FAILED else row.with_pair(row.key, value)

        return step


class _SelectKey(_Base):
    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._fn = cast("SelectKey", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, keys = self._apply(self._fn, rows)
        return rows.with_keys(keys)

    def row_step(self) -> RowStep | None:
        called = row_call(self._fn, self._name, self._context)
        if called is None:
            return None

        def step(row: Row) -> Row | None:
            key = called(row, row.value)
            return None if key is FAILED else row.with_pair(key, row.value)

        return step


class _Peek(_Base):
    """The operator that calls a function for its effect: peek, and foreach, which has no children."""

    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._fn = cast("Peek | Foreach", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        return self._apply(self._fn, rows)[0]

    def row_step(self) -> RowStep | None:
        called = row_call(self._fn, self._name, self._context)
        return None if called is None else lambda row: None if called(row, row.value) is FAILED else row


class _Unpacking(_Base):
    """Operators whose function returns pairs or iterables, which may be malformed row by row."""

    def _unpack(self, function: Function, rows: Rows, unpack: Callable[[Any], Any]) -> tuple[Rows, list[Any]]:
        rows, results = self._apply(function, rows)
        unpacked: list[Any] = []
        failed: list[int] = []
        for row, result in enumerate(results.items()):
            try:
                unpacked.append(unpack(result))
            except Exception as error:  # noqa: BLE001 - a user's generator may raise anything
                self._context.failed(self._name, function, rows, row, error)
                failed.append(row)
        kept = failures_removed(failed, len(rows))
        return (rows if kept is None else rows.take(kept)), unpacked

    def _row_unpack(self, function: Function, unpack: Callable[[Any], Any]) -> Callable[[Row], Any] | None:
        """Return what `_unpack` does with a row by itself; the result is `FAILED` where that failed."""
        called, context = row_call(function, self._name, self._context), self._context
        if called is None:
            return None

        def unpacked(row: Row) -> Any:
            result = called(row, row.value)
            if result is FAILED:
                return FAILED
            try:
                return unpack(result)
            except Exception as error:  # noqa: BLE001 - a user's generator may raise anything
                context.failed(self._name, function, row.rows(context.step), 0, error)
                return FAILED

        return unpacked


def pair_of(result: Any) -> tuple[Any, Any]:
    """Check that a function's result is a (key, value) pair, and return it."""
    if type(result) is tuple and len(result) == 2:
        return result
    if isinstance(result, dict) and result.keys() == {"key", "value"}:
        return result["key"], result["value"]
    try:
        key, value = result
    except (TypeError, ValueError):
        message = f"the function must return a (key, value) pair, not {result!r}"
        raise TypeError(message) from None
    return key, value


def _iterable(result: Any) -> list[Any]:
    if type(result) is list:
        return result
    if isinstance(result, (str, bytes)) or not isinstance(result, Iterable):
        message = f"the function must return an iterable such as a list, not {result!r}"
        raise TypeError(message)
    return list(result)


def _pairs(result: Any) -> list[tuple[Any, Any]]:
    return [pair_of(each) for each in _iterable(result)]


class _MapPairs(_Unpacking):
    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._fn = cast("MapPairs", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if self._fn.is_expression:
            kept, results = self._apply(self._fn, rows)
            series = results.series()
            if isinstance(series.dtype, pl.Struct) and set(series.struct.fields) == {"key", "value"}:
                return _with_pairs(kept, series)
            rows, pairs = self._unpack_results(kept, results.items())
        else:
            rows, pairs = self._unpack(self._fn, rows, pair_of)
        return rows.with_pairs(Column.of_items([p[0] for p in pairs]), Column.of_items([p[1] for p in pairs]))

    def row_step(self) -> RowStep | None:
        pair_for = self._row_unpack(self._fn, pair_of)
        if pair_for is None:
            return None

        def step(row: Row) -> Row | None:
            pair = pair_for(row)
            return None if pair is FAILED else row.with_pair(*pair)

        return step

    def _unpack_results(self, rows: Rows, results: list[Any]) -> tuple[Rows, list[Any]]:
        """Unpack results of an expression that are not structs {key, value}: each row fails by itself."""
        kept: list[int] = []
        pairs: list[Any] = []
        for row, result in enumerate(results):
            try:
                pairs.append(pair_of(result))
            except TypeError as error:
                self._context.failed(self._name, self._fn, rows, row, error)
            else:
                kept.append(row)
        return rows.take(np.array(kept, np.int64)), pairs


def _with_pairs(rows: Rows, pairs: pl.Series) -> Rows:
    fields = pairs.struct
    return rows.with_pairs(
        Column.of_series(fields.field("key").alias("")), Column.of_series(fields.field("value").alias(""))
    )


def _repeated(rows: Rows, counts: NDArray[np.int64]) -> Rows:
    """Repeat each row ``counts`` times, with the number of its repetition as one more part of its place."""
    index = np.repeat(np.arange(len(rows)), counts)
    numbers = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    repeated = rows.take(index)
    return replace(repeated, place=repeated.place.extend(numbers))


def _counts(lists: list[list[Any]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, lists), np.int64, len(lists))


class _FlatMapValues(_Unpacking):
    makes_many = True

    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._fn = cast("FlatMapValues", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if self._fn.is_expression:
            kept, results = self._apply(self._fn, rows)
            series = results.series()
            if isinstance(series.dtype, pl.List):
                values, counts = _exploded(series)
                return _repeated(kept, counts).with_values(Column.of_series(values))
        kept, lists = self._unpack(self._fn, rows, _iterable)
        return _repeated(kept, _counts(lists)).with_values(Column.of_items([v for one in lists for v in one]))

    def row_step(self) -> RowStep | None:
        values_for = self._row_unpack(self._fn, _iterable)
        if values_for is None:
            return None

        def step(row: Row) -> list[Row] | None:
            values = values_for(row)
            if values is FAILED:
                return None
            return [row.with_pair(row.key, value) for value in values]

        return step


class _FlatMap(_Unpacking):
    makes_many = True

    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._fn = cast("FlatMap", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if self._fn.is_expression:
            kept, results = self._apply(self._fn, rows)
            series = results.series()
            if isinstance(series.dtype, pl.List) and isinstance(series.dtype.inner, pl.Struct):
                values, counts = _exploded(series)
                return _with_pairs(_repeated(kept, counts), values)
        kept, lists = self._unpack(self._fn, rows, _pairs)
        pairs = [p for one in lists for p in one]
        repeated = _repeated(kept, _counts(lists))
        return repeated.with_pairs(Column.of_items([p[0] for p in pairs]), Column.of_items([p[1] for p in pairs]))

    def row_step(self) -> RowStep | None:
        pairs_for = self._row_unpack(self._fn, _pairs)
        if pairs_for is None:
            return None

        def step(row: Row) -> list[Row] | None:
            pairs = pairs_for(row)
            if pairs is FAILED:
                return None
            return [row.with_pair(key, value) for key, value in pairs]

        return step


def _exploded(lists: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """Return all items one after the other, and how many each list has; a null list has none."""
    counts = lists.list.len().fill_null(0).cast(pl.Int64).to_numpy()
    return lists.filter(pl.Series(counts > 0)).explode(), counts


class _Branch(_Base):
    names_children = True

    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._operation = cast("Branch", node.operation)

    def process(self, rows: Rows, parent: str) -> Sequence[tuple[str | None, Rows]]:  # noqa: ARG002
        operation = self._operation
        out: list[tuple[str | None, Rows]] = []
        for predicate, child in zip(operation.predicates, operation.children, strict=True):
            if not len(rows):
                break
            rows, verdicts = self._apply(predicate, rows)
            mask = truth(verdicts)
            if mask.any():
                out.append((child, rows.filter(mask)))
            rows = rows.filter(~mask)
        if operation.default is not None and len(rows):
            out.append((operation.default, rows))
        return out

    def row_step(self) -> RowStep | None:
        operation = self._operation
        routes: list[tuple[Callable[[Row, Any], Any], str]] = []
        for predicate, child in zip(operation.predicates, operation.children, strict=True):
            called = row_call(predicate, self._name, self._context)
            if called is None:
                return None
            routes.append((called, child))

        def step(row: Row) -> list[tuple[str, Row]] | None:
            for called, child in routes:
                verdict = called(row, row.value)
                if verdict is FAILED:
                    return None
                if verdict:
                    return [(child, row)]
            return None if operation.default is None else [(operation.default, row)]

        return step


_OPERATORS: dict[type[Operation], Callable[[ProcessorNode, TaskContext], Operator]] = {
    PassThrough: _PassThrough,
    DropNullKeys: _DropNullKeys,
    Filter: _Filter,
    MapPairs: _MapPairs,
    MapValues: _MapValues,
    FlatMap: _FlatMap,
    FlatMapValues: _FlatMapValues,
    SelectKey: _SelectKey,
    Peek: _Peek,
    Foreach: _Peek,
    Branch: _Branch,
}


def _factory(
    operator: Callable[[ProcessorNode, TaskContext], Operator],
) -> Callable[[ProcessorNode, Topology, TaskContext], Operator]:
    return lambda node, topology, context: operator(node, context)  # noqa: ARG005


FACTORIES = {operation: _factory(operator) for operation, operator in _OPERATORS.items()}
