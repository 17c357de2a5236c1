"""Operators without state: filters, maps, branches, peeks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from penstock.runtime.functions.calls import apply, failures_removed
from penstock.runtime.operator import Operator
from penstock.serde.column import Column
from penstock.topology.operations.base import (
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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.functions import Function
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "pair_of", "truth"]


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


class _DropNullKeys(_Base):
    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        return rows.filter(~rows.keys.null_mask())


class _Filter(_Base):
    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._operation = cast("Filter", node.operation)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, verdicts = self._apply(self._operation.predicate, rows)
        mask = truth(verdicts)
        return rows.filter(~mask if self._operation.negate else mask)


class _MapValues(_Base):
    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._fn = cast("MapValues", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, values = self._apply(self._fn, rows)
        return rows.with_values(values)


class _SelectKey(_Base):
    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._fn = cast("SelectKey", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, keys = self._apply(self._fn, rows)
        return rows.with_keys(keys)


class _Peek(_Base):
    """Calls the function for its effect: peek, and foreach, which has no children."""

    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        super().__init__(node, context)
        self._fn = cast("Peek | Foreach", node.operation).fn

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        return self._apply(self._fn, rows)[0]


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


class _FlatMap(_Unpacking):
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
        kept, lists = self._unpack(self._fn, rows, lambda result: [pair_of(r) for r in _iterable(result)])
        pairs = [p for one in lists for p in one]
        repeated = _repeated(kept, _counts(lists))
        return repeated.with_pairs(Column.of_items([p[0] for p in pairs]), Column.of_items([p[1] for p in pairs]))


def _exploded(lists: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """Return all items one after the other, and how many each list has; a null list has none."""
    counts = lists.list.len().fill_null(0).cast(pl.Int64).to_numpy()
    return lists.filter(pl.Series(counts > 0)).explode(), counts


class _Branch(_Base):
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
