"""Aggregations that are known to be a count, a sum, a minimum and so on, so that they can run over whole columns.

Known are the built-in aggregators (`penstock.agg`), ``operator.add``, the built-ins ``min`` and ``max``, lambdas whose
bytecode is that of ``lambda a, b: a + b``, ``lambda a, b: a`` or ``lambda a, b: b``, and the Polars expressions that
say the same of ``aggregate`` and ``value``, or a field of the value.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal, cast

import polars as pl

from penstock.api.groups.agg import BuiltInAggregator, MeanAggregator, SimpleAggregator, StructAggregator

if TYPE_CHECKING:
    from penstock.topology.operations.base import Aggregation

__all__ = ["KnownAggregation", "KnownAggregator", "few_by_row", "recognise"]

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


def few_by_row(aggregation: Aggregation, known: KnownAggregation | None) -> bool:
    """Return whether a few rows take less time one by one than by the columns of the known aggregation."""
    function = aggregation.aggregator
    return known is not None and known.kind in _NUMBERS and not (function is not None and function.is_expression)


def one_by_row(aggregation: Aggregation, known: KnownAggregation | None) -> bool:
    """Return whether a single row may be folded by a call: nothing of the aggregation needs a column."""
    function = aggregation.aggregator
    is_expression = function is not None and function.is_expression
    return not is_expression and (known is None or known.kind in _NUMBERS)


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
