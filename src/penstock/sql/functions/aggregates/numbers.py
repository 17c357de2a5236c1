"""Aggregates of numbers: counts, sums, means, deviations, correlation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from penstock.sql.functions.aggregates.definition import AggregateFunction, AggregateSteps
from penstock.sql.functions.patterns import Signature
from penstock.sql.types import BIGINT, DOUBLE, INTEGER, ArrayType, DecimalType, SqlType
from penstock.sql.types.numbers import decimal_text, fit, wrap_int, wrap_long

__all__ = ["NUMBER_AGGREGATES"]


def _function(
    name: str,
    meaning: str,
    texts: Sequence[str],
    factory: Callable[..., AggregateSteps],
    example: tuple[tuple[Any, ...], Any],
) -> AggregateFunction:
    signatures = tuple(Signature.parse(text) for text in texts)
    return AggregateFunction(name, meaning, signatures, (0,) * len(texts), factory, can_undo=True, example=example)


def _count(_kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    def add(state: int, *row: Any) -> int:
        return state if None in row else state + 1

    def undo(state: int, *row: Any) -> int:
        return state if None in row else state - 1

    return AggregateSteps(int, add, lambda one, two: one + two, _same, BIGINT, undo)


def _sum(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    kind = kinds[0].element if isinstance(kinds[0], ArrayType) else kinds[0]
    many = isinstance(kinds[0], ArrayType)
    if isinstance(kind, DecimalType):
        return _decimal_sum(kind)
    wrap: Callable[[Any], Any] = wrap_int if kind == INTEGER else wrap_long if kind == BIGINT else float

    def moved(sign: int) -> Callable[[Any, Any], Any]:
        def step(state: Any, value: Any) -> Any:
            for item in (value or []) if many else (value,):
                if item is not None:
                    state = wrap(state + sign * item)
            return state

        return step

    zero = 0.0 if kind == DOUBLE else 0
    return AggregateSteps(lambda: zero, moved(1), lambda one, two: wrap(one + two), _same, kind, moved(-1))


def _decimal_sum(kind: DecimalType) -> AggregateSteps:
    def moved(sign: int) -> Callable[[str, Decimal | None], str]:
        def step(state: str, value: Decimal | None) -> str:
            return state if value is None else decimal_text(fit(Decimal(state) + sign * value, kind))

        return step

    def merge(one: str, two: str) -> str:
        return decimal_text(fit(Decimal(one) + Decimal(two), kind))

    return AggregateSteps(lambda: decimal_text(fit(0, kind)), moved(1), merge, Decimal, kind, moved(-1))


def _average(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    wrap: Callable[[Any], Any] = wrap_int if kinds[0] == INTEGER else wrap_long if kinds[0] == BIGINT else float
    zero = 0.0 if kinds[0] == DOUBLE else 0

    def moved(sign: int) -> Callable[[list[Any], Any], list[Any]]:
        def step(state: list[Any], value: Any) -> list[Any]:
            return state if value is None else [wrap(state[0] + sign * value), state[1] + sign]

        return step

    def merge(one: list[Any], two: list[Any]) -> list[Any]:
        return [wrap(one[0] + two[0]), one[1] + two[1]]

    def result(state: list[Any]) -> float:
        return float(state[0]) / state[1] if state[1] else 0.0

    return AggregateSteps(lambda: [zero, 0], moved(1), merge, result, DOUBLE, moved(-1))


def _deviation(finish: Callable[[float], float]) -> Callable[..., AggregateSteps]:
    """States are count, sum and the sum of squared distances from the mean, updated by Welford's method."""

    def factory(_kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
        def add(state: list[float], value: float | None) -> list[float]:
            if value is None:
                return state
            count, total, squares = state
            count, total = count + 1, total + value
            if count > 1:
                squares += (count * value - total) ** 2 / (count * (count - 1))
            return [count, total, squares]

        def undo(state: list[float], value: float | None) -> list[float]:
            if value is None:
                return state
            count, total, squares = state
            if count > 1:
                squares -= (count * value - total) ** 2 / (count * (count - 1))
            return [count - 1, total - value, squares]

        def merge(one: list[float], two: list[float]) -> list[float]:
            if not one[0] or not two[0]:
                return two if not one[0] else one
            count = one[0] + two[0]
            apart = two[1] / two[0] - one[1] / one[0]
            return [count, one[1] + two[1], one[2] + two[2] + apart**2 * one[0] * two[0] / count]

        def result(state: list[float]) -> float:
            return finish(state[2] / (state[0] - 1)) if state[0] > 1 else 0.0

        return AggregateSteps(lambda: [0, 0, 0.0], add, merge, result, DOUBLE, undo)

    return factory


def _correlation(_kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    """States are the count and the sums of x, y, xx, yy and xy."""

    def moved(sign: int) -> Callable[..., list[float]]:
        def step(state: list[float], x: float | None, y: float | None) -> list[float]:
            if x is None or y is None:
                return state
            terms = (1, x, y, x * x, y * y, x * y)
            return [sum_ + sign * term for sum_, term in zip(state, terms, strict=True)]

        return step

    def merge(one: list[float], two: list[float]) -> list[float]:
        return [a + b for a, b in zip(one, two, strict=True)]

    def result(state: list[float]) -> float:
        count, x, y, xx, yy, xy = state
        spread = (count * xx - x * x) * (count * yy - y * y)
        return (count * xy - x * y) / math.sqrt(spread) if spread > 0 else math.nan

    return AggregateSteps(lambda: [0] * 6, moved(1), merge, result, DOUBLE, moved(-1))


def _same(state: Any) -> Any:
    return state


def _nothing(value: float) -> float:
    return value


NUMBERS = ("INTEGER", "BIGINT", "DOUBLE")
NUMBER_AGGREGATES = (
    _function(
        "COUNT",
        "The number of rows, or of those where the argument is not null.",
        ("COUNT() BIGINT", "COUNT(value ANY) BIGINT"),
        _count,
        (((1,), (None,), (3,)), 2),
    ),
    _function(
        "SUM",
        "The sum of the values that are not null, 0 of none; it has their type, and whole numbers overflow.",
        [f"SUM(value {kind}) {kind}" for kind in (*NUMBERS, "DECIMAL")],
        _sum,
        (((1,), (None,), (3,)), 4),
    ),
    _function(
        "SUM_LIST",
        "The sum of all elements of arrays.",
        [f"SUM_LIST(values ARRAY<{kind}>) {kind}" for kind in NUMBERS],
        _sum,
        ((([1, 2],), ([3, None],)), 6),
    ),
    _function(
        "AVG",
        "The mean of the values that are not null, 0.0 of none.",
        [f"AVG(value {kind}) DOUBLE" for kind in NUMBERS],
        _average,
        (((1,), (None,), (4,)), 2.5),
    ),
    _function(
        "STDDEV_SAMP",
        "The variance of a sample, as ksqlDB has it under this name; STDDEV_SAMPLE is the deviation.",
        [f"STDDEV_SAMP(value {kind}) DOUBLE" for kind in NUMBERS],
        _deviation(_nothing),
        (((0,), (10,)), 50.0),
    ),
    _function(
        "STDDEV_SAMPLE",
        "The standard deviation of a sample, 0.0 of fewer than two values.",
        [f"STDDEV_SAMPLE(value {kind}) DOUBLE" for kind in NUMBERS],
        _deviation(lambda variance: math.sqrt(max(variance, 0.0))),
        (((2,), (4,), (6,)), 2.0),
    ),
    _function(
        "CORRELATION",
        "The Pearson correlation of two columns, NaN if one of them does not vary.",
        [f"CORRELATION(x {kind}, y {kind}) DOUBLE" for kind in NUMBERS],
        _correlation,
        (((1, 2), (2, 4), (3, 6)), 1.0),
    ),
)
