"""The second back end: expressions over columns, by Polars where it is proved equal, else by the generated code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Literal

import numpy as np
import polars as pl

from penstock.serde.column import Column, RowColumn
from penstock.sql.evaluate import typed as n
from penstock.sql.evaluate.compiled import compile_rows
from penstock.sql.evaluate.generate import parts
from penstock.sql.evaluate.polars_forms import FrameScope, polars_expression, spoils
from penstock.sql.functions import EvaluationErrors
from penstock.sql.types import SqlValueError
from penstock.sql.types.columns import typed_series

__all__ = ["back_end", "compile_columns", "explain", "places_of"]

ROWS = "rows"  # a column that every frame has, so that constants have as many rows


def back_end(expression: n.Typed) -> Literal["Polars", "Python"]:
    """Return the back end that an expression takes where rows come by the column."""
    if isinstance(expression, n.TypedColumn):
        return "Polars"
    return "Python" if polars_expression(expression, FrameScope()) is None else "Polars"


def explain(expressions: Sequence[n.Typed], names: Sequence[str]) -> list[str]:
    """Return one line for each expression: its name, its type and its back end.

    >>> from penstock.sql.types import STRING
    >>> explain([n.TypedColumn(STRING, 0)], ["NAME"])
    ['NAME STRING: Polars']
    """
    pairs = zip(expressions, names, strict=True)
    return [f"{name} {expression.type}: {back_end(expression)}" for expression, name in pairs]


def compile_columns(
    expressions: Sequence[n.Typed], errors: EvaluationErrors, names: Sequence[str] = ()
) -> Callable[[RowColumn], list[Column]]:
    """Compile expressions to a function of rows by the column, none of them null, that returns their columns.

    Each expression takes its own back end; the errors are reported as `compile_rows` reports them.

    >>> from penstock.sql.evaluate.typed import TypedColumn as Place, Comparison, Constant
    >>> from penstock.sql.types import BOOLEAN, INTEGER
    >>> above = Comparison(BOOLEAN, ">", Place(INTEGER, 0), Constant(INTEGER, 1))
    >>> rows = RowColumn([Column.of_items([1, 2, None])], 3)
    >>> [column.items() for column in compile_columns([above], EvaluationErrors())(rows)]
    [[False, True, False]]
    """
    return _Columns(expressions, errors, names).run


class _Columns:
    """Expressions of a row, sorted by what computes them."""

    def __init__(self, expressions: Sequence[n.Typed], errors: EvaluationErrors, names: Sequence[str]) -> None:
        self._expressions = tuple(expressions)
        self._errors = errors
        self._names = tuple(names) or tuple(f"expression {at + 1}" for at in range(len(self._expressions)))
        self._scope = FrameScope()
        self._vectors: dict[int, pl.Expr] = {}
        self._rest: list[int] = []
        for at, expression in enumerate(self._expressions):
            if isinstance(expression, n.TypedColumn):
                continue
            vector = polars_expression(expression, self._scope)
            if vector is None:
                self._rest.append(at)
            else:
                self._vectors[at] = vector.alias(str(at))
        self._by_row: dict[tuple[int, ...], Callable[[Any], Any]] = {}

    def run(self, rows: RowColumn) -> list[Column]:
        """Return the columns of the expressions."""
        columns: dict[int, Column] = {
            at: rows.columns[each.index] for at, each in enumerate(self._expressions) if isinstance(each, n.TypedColumn)
        }
        series = self._vectorised(rows)
        if series is None:
            columns.update(self._generated(rows, sorted([*self._vectors, *self._rest])))
        else:
            columns.update({at: Column.of_series(one) for at, one in series.items()})
            columns.update(self._generated(rows, self._rest))
        return [columns[at] for at in range(len(self._expressions))]

    def _vectorised(self, rows: RowColumn) -> dict[int, pl.Series] | None:
        """Return what Polars computes; None if these rows are not for it."""
        if not self._vectors:
            return {}
        columns: list[pl.Series] = [pl.Series(ROWS, np.zeros(len(rows), np.int8))]
        for index, kind in self._scope.kinds.items():
            series = typed_series(rows.columns[index], kind)
            if series is None:
                return None
            columns.append(series.alias(str(index)))
        frame = pl.DataFrame(columns)
        try:
            for name, each in self._scope.prepared.values():  # one by one: a later one may take an earlier one
                frame = frame.with_columns(each.alias(name))
            if self._scope.checks and not all(frame.select(_all(self._scope.checks.values())).row(0)):
                return None
            table = frame.select(ROWS, *self._vectors.values())
        except pl.exceptions.PolarsError:
            return None  # an expression that its engine refuses, such as one that is too large
        vectors = {at: table.get_column(str(at)).alias("") for at in self._vectors}
        for at, one in vectors.items():
            if spoils(self._expressions[at]) and (count := one.null_count()):
                self._errors.report(self._names[at], SqlValueError("an operand is null"), count)
        return vectors

    def _generated(self, rows: RowColumn, places: Sequence[int]) -> Iterable[tuple[int, Column]]:
        """Return what the generated code computes of the columns that it names."""
        if not places:
            return []
        chosen = [self._expressions[at] for at in places]
        function = self._by_row.get(tuple(places))
        if function is None:
            function = compile_rows(chosen, self._errors, [self._names[at] for at in places])
            self._by_row[tuple(places)] = function
        used: set[int] = set().union(*map(places_of, chosen))
        columns = [column.items() if at in used else repeat(None, len(rows)) for at, column in enumerate(rows.columns)]
        inputs = zip(*columns, strict=False) if columns else repeat((), len(rows))
        results = list(map(function, inputs))
        return [(at, Column.of_items([row[position] for row in results])) for position, at in enumerate(places)]


def _all(checks: Iterable[pl.Expr]) -> list[pl.Expr]:
    return [each.all(ignore_nulls=True).alias(str(at)) for at, each in enumerate(checks)]


def places_of(expression: n.Typed) -> set[int]:
    if isinstance(expression, n.TypedColumn):
        return {expression.index}
    indexes: set[int] = set().union(*(places_of(part) for part in parts(expression)))
    return indexes
