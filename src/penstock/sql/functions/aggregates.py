"""Aggregate functions: of numbers, of any values, by offset, of distinct values.

Their states are plain JSON; steps add, undo and merge.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from penstock.sql.functions.patterns import Signature, match
from penstock.sql.functions.registry import About
from penstock.sql.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    SqlTypeError,
    StructType,
)
from penstock.sql.types.conversions import nested_conversion, widening
from penstock.sql.types.numbers import decimal_text, double_text, fit, wrap_int, wrap_long
from penstock.sql.types.texts import date_of, days_of, millis_of_day, time_of

__all__ = [
    "AggregateFunction",
    "AggregateRegistry",
    "AggregateSteps",
    "Arrivals",
    "BoundAggregate",
    "aggregate_functions",
    "from_state",
    "to_state",
]

Step = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class AggregateSteps:
    """The steps of an aggregate for arguments of known types.

    A step takes a state and returns the new one; it may change lists and dicts in place. States hold what JSON holds;
    decimals, dates, times and bytes in them are written by `to_state`.

    Attributes:
        initialise: the state of no rows.
        add: the state after a row; takes the state and the row's arguments.
        merge: the state of two, the first of them the older; for session windows.
        result: the value of a state.
        undo: the state before a row, for tables; ``None`` if it cannot be undone.
        type: the type of the result.
    """

    initialise: Callable[[], Any]
    add: Step
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    type: SqlType
    undo: Step | None = None


Factory = Callable[[Sequence[SqlType], Sequence[Any]], AggregateSteps]


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """An aggregate function for arguments of known types and constants.

    Attributes:
        columns: the number of leading arguments that are expressions of a row; the others were constants.
    """

    name: str
    columns: int
    steps: AggregateSteps

    @property
    def type(self) -> SqlType:
        """The type of the result."""
        return self.steps.type

    def fold(self, rows: Iterable[Sequence[Any]]) -> Any:
        """Return the result over rows of arguments."""
        state = self.steps.initialise()
        for row in rows:
            state = self.steps.add(state, *row)
        return self.steps.result(state)


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function of the language with its documentation.

    Attributes:
        constants: the number of trailing parameters that must be literals, such as the K of TOPK, by signature.
        example: rows of arguments, and the result over them; the tests run it.
        others: further implementations for other arguments, under the same name.
    """

    name: str
    meaning: str
    signatures: tuple[Signature, ...]
    constants: tuple[int, ...]
    factory: Factory
    can_undo: bool
    example: tuple[tuple[Any, ...], Any] = field(default=((), None))
    others: tuple[AggregateFunction, ...] = ()
    about: About | None = None


class AggregateRegistry:
    """Aggregate functions by name; names are not case-sensitive."""

    def __init__(self, functions: Iterable[AggregateFunction]) -> None:
        self._functions = {function.name: function for function in functions}

    def extended(self, functions: Iterable[AggregateFunction]) -> AggregateRegistry:
        """Return this registry and further functions."""
        return AggregateRegistry((*self._functions.values(), *functions))

    def __iter__(self) -> Iterator[AggregateFunction]:
        return iter(sorted(self._functions.values(), key=lambda function: function.name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all functions."""
        return tuple(self._functions)

    def get(self, name: str) -> AggregateFunction | None:
        """Return a function by its name; ``None`` if there is none."""
        return self._functions.get(name.upper())

    def resolve(self, name: str, kinds: Sequence[SqlType], constants: Sequence[Any] = ()) -> BoundAggregate:
        """Bind a function to the types of its arguments, and the values of those that are literals, from the last back.

        Raises:
            SqlTypeError: there is no such function, no signature fits, or a literal is missing or out of range.
        """
        function = self.get(name)
        if function is None:
            raise SqlTypeError(f"No function has the name '{name}'")
        types_text = f"({', '.join(map(str, kinds))})"
        for widen in (False, True):
            for each in (function, *function.others):
                for signature, literal_count in zip(each.signatures, each.constants, strict=True):
                    matched = match(signature, kinds, widen=widen)
                    if matched is not None:
                        targets = [kind for kind in matched.arguments if isinstance(kind, SqlType)]
                        columns = len(kinds) - _literals(signature, literal_count, len(kinds))
                        return _bound(each, columns, (kinds, targets), constants)
        valid = "; ".join(
            str(valid_signature) for each in (function, *function.others) for valid_signature in each.signatures
        )
        raise SqlTypeError(f"Function '{name}' has no signature for the parameters {types_text}. It takes: {valid}")


def _literals(signature: Signature, literal_count: int, argument_count: int) -> int:
    """Return the number of trailing arguments that must be literals."""
    fixed = len(signature.parameters) - literal_count
    variadic = any(parameter.variadic for parameter in signature.parameters[fixed:])
    return argument_count - fixed if variadic else literal_count


def _bound(
    function: AggregateFunction,
    columns: int,
    types: tuple[Sequence[SqlType], Sequence[SqlType]],
    constants: Sequence[Any],
) -> BoundAggregate:
    kinds, targets = types
    literal_count = len(kinds) - columns
    values = list(constants[len(constants) - literal_count :]) if literal_count else []
    if len(values) < literal_count or None in values:
        raise SqlTypeError(f"Parameter {len(kinds)} of function '{function.name}' must be a literal")
    steps = function.factory(targets[:columns], values)
    return BoundAggregate(function.name, columns, _widened(steps, kinds[:columns], targets[:columns]))


def _widened(steps: AggregateSteps, sources: Sequence[SqlType], targets: Sequence[SqlType]) -> AggregateSteps:
    conversions = [widening(source, target) for source, target in zip(sources, targets, strict=True)]
    if not any(conversions):
        return steps

    def convert(step: Step) -> Step:
        def converted(state: Any, *row: Any) -> Any:
            return step(state, *(c(v) if c else v for c, v in zip(conversions, row, strict=True)))

        return converted

    undo = convert(steps.undo) if steps.undo else None
    return AggregateSteps(steps.initialise, convert(steps.add), steps.merge, steps.result, steps.type, undo)


Convert = Callable[[Any], Any]


def to_state(kind: SqlType) -> Convert:
    """Return the function that makes values of a type plain JSON.

    >>> to_state(DecimalType(3, 1))(Decimal("1.5"))
    '1.5'
    """
    return _converted(
        kind, to_state, {BYTES: _base64, DATE: days_of, TIME: millis_of_day, DOUBLE: _double}, decimal_text
    )


def from_state(kind: SqlType) -> Convert:
    """Return the function that makes values of a type out of plain JSON."""
    return _converted(kind, from_state, {BYTES: base64.b64decode, DATE: date_of, TIME: time_of, DOUBLE: float}, Decimal)


def _converted(
    kind: SqlType, again: Callable[[SqlType], Convert], plain: dict[SqlType, Convert], exact: Convert
) -> Convert:
    of_leaf = exact if isinstance(kind, DecimalType) else plain.get(kind)
    inner = nested_conversion(kind, again) or of_leaf
    if inner is None:
        return lambda value: value
    return lambda value: None if value is None else inner(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _double(value: float) -> float | str:
    return value if value - value == 0 else double_text(value)  # JSON has no NaN and no infinity


# Of numbers


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


# Of any values

HISTOGRAM_LIMIT = 1000  # distinct values; further ones are left out
ORDERED = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP")
Choose = Callable[[Any, Any], Any]


def _extreme(choose: Choose) -> Callable[..., AggregateSteps]:
    def factory(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
        keep, read = to_state(kinds[0]), from_state(kinds[0])

        def add(state: Any, value: Any) -> Any:
            if value is None:
                return state
            return keep(value if state is None else choose(read(state), value))

        def merge(one: Any, two: Any) -> Any:
            return add(one, read(two))

        return AggregateSteps(_none, add, merge, read, kinds[0])

    return factory


def _count_of(function: str, constants: Sequence[Any]) -> int:
    count = constants[0]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SqlTypeError(f"the K of {function} must be a positive whole number, not {count}")
    return count


def _top(*, distinct: bool) -> Callable[..., AggregateSteps]:
    name = "TOPKDISTINCT" if distinct else "TOPK"

    def factory(kinds: Sequence[SqlType], constants: Sequence[Any]) -> AggregateSteps:
        size = _count_of(name, constants)
        fields = [("sort_col", kinds[0]), *((f"col{at}", kind) for at, kind in enumerate(kinds[1:]))]
        single = len(kinds) == 1
        row_type = kinds[0] if single else StructType.of(fields)
        keep, read = to_state(row_type), from_state(row_type)

        def rank(row: Any) -> Any:
            return row if single else row["sort_col"]

        def best(rows: list[Any]) -> list[Any]:
            if distinct:
                rows = list(dict.fromkeys(rows))
            return [keep(row) for row in sorted(rows, key=rank, reverse=True)[:size]]

        def add(state: list[Any], value: Any, *others: Any) -> list[Any]:
            if value is None:
                return state
            row = value if single else dict(zip((field for field, _ in fields), (value, *others), strict=True))
            return best([*map(read, state), row])

        def merge(one: list[Any], two: list[Any]) -> list[Any]:
            return best([*map(read, one), *map(read, two)])

        return AggregateSteps(list, add, merge, lambda state: list(map(read, state)), ArrayType(row_type))

    return factory


def collections(list_limit: int | None = None, set_limit: int | None = None) -> tuple[AggregateFunction, ...]:
    """COLLECT_LIST and COLLECT_SET with limits of their size: ksqlDB's ``ksql.functions.collect_list.limit``."""

    def collect_list(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
        keep, read = to_state(kinds[0]), from_state(kinds[0])

        def add(state: list[Any], value: Any) -> list[Any]:
            return state if list_limit is not None and len(state) >= list_limit else [*state, keep(value)]

        def undo(state: list[Any], value: Any) -> list[Any]:
            stored = keep(value)
            at = next((at for at in reversed(range(len(state))) if state[at] == stored), None)
            return state if at is None else state[:at] + state[at + 1 :]

        def merge(one: list[Any], two: list[Any]) -> list[Any]:
            return [*one, *two][:list_limit]

        return AggregateSteps(list, add, merge, lambda state: list(map(read, state)), ArrayType(kinds[0]), undo)

    def collect_set(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
        keep, read = to_state(kinds[0]), from_state(kinds[0])

        def merge(one: list[Any], two: list[Any]) -> list[Any]:
            return [*one, *(item for item in two if item not in one)][:set_limit]

        def add(state: list[Any], value: Any) -> list[Any]:
            return merge(state, [keep(value)])

        return AggregateSteps(list, add, merge, lambda state: list(map(read, state)), ArrayType(kinds[0]))

    listed, distinct = (
        Signature.parse("COLLECT_LIST(value T) ARRAY<T>"),
        Signature.parse("COLLECT_SET(value T) ARRAY<T>"),
    )
    rows = ((1,), (2,), (1,))
    return (
        AggregateFunction(
            "COLLECT_LIST",
            "All values in their order, nulls too.",
            (listed,),
            (0,),
            collect_list,
            can_undo=True,
            example=(rows, [1, 2, 1]),
        ),
        AggregateFunction(
            "COLLECT_SET",
            "The distinct values, a null too.",
            (distinct,),
            (0,),
            collect_set,
            can_undo=False,
            example=(rows, [1, 2]),
        ),
    )


def _histogram(_kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    def counted(state: dict[str, int], value: str, by: int) -> dict[str, int]:
        count = state.get(value, 0) + by
        if value not in state and len(state) >= HISTOGRAM_LIMIT:
            return state
        rest = {**state, value: count}
        if count <= 0:
            del rest[value]
        return rest

    def add(state: dict[str, int], value: str | None) -> dict[str, int]:
        return counted(state, "null" if value is None else value, 1)

    def undo(state: dict[str, int], value: str | None) -> dict[str, int]:
        return counted(state, "null" if value is None else value, -1)

    def merge(one: dict[str, int], two: dict[str, int]) -> dict[str, int]:
        for value, number in two.items():
            one = counted(one, value, number)
        return one

    return AggregateSteps(dict, add, merge, dict, MapType(STRING, BIGINT), undo)


def _attribute(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    """States are pairs of a value and how often it was seen."""
    keep, read = to_state(kinds[0]), from_state(kinds[0])

    def counted(state: list[Any], value: Any, by: int) -> list[Any]:
        for at, (seen, number) in enumerate(state):
            if seen == value:
                changed = [[seen, number + by]] if number + by > 0 else []
                return [*state[:at], *changed, *state[at + 1 :]]
        return [*state, [value, by]] if by > 0 else state

    def merge(one: list[Any], two: list[Any]) -> list[Any]:
        for value, number in two:
            one = counted(one, value, number)
        return one

    def result(state: list[Any]) -> Any:
        return read(state[0][0]) if len(state) == 1 else None

    def add(state: list[Any], value: Any) -> list[Any]:
        return counted(state, keep(value), 1)

    def undo(state: list[Any], value: Any) -> list[Any]:
        return counted(state, keep(value), -1)

    return AggregateSteps(list, add, merge, result, kinds[0], undo)


def _none() -> Any:
    return None


def _plain(
    name: str,
    meaning: str,
    texts: Sequence[str],
    factory: Callable[..., AggregateSteps],
    example: tuple[tuple[Any, ...], Any],
) -> AggregateFunction:
    signatures = tuple(Signature.parse(text) for text in texts)
    constants = (1 if name.startswith("TOPK") else 0,) * len(texts)
    undoes = name in ("HISTOGRAM", "ATTR")
    return AggregateFunction(name, meaning, signatures, constants, factory, undoes, example)


VALUE_AGGREGATES = (
    _plain(
        "MIN",
        "The least value that is not null.",
        [f"MIN(value {kind}) {kind}" for kind in ORDERED],
        _extreme(min),
        (((3,), (None,), (1,)), 1),
    ),
    _plain(
        "MAX",
        "The greatest value that is not null.",
        [f"MAX(value {kind}) {kind}" for kind in ORDERED],
        _extreme(max),
        (((3,), (None,), (1,)), 3),
    ),
    _plain(
        "TOPK",
        "The K greatest values in falling order; with further columns, structs of the value and those.",
        [
            *(f"TOPK(value {kind}, k INTEGER) ARRAY<{kind}>" for kind in ORDERED),
            *(f"TOPK(value {kind}, others ANY..., k INTEGER) ARRAY<{kind}>" for kind in ORDERED),
        ],
        _top(distinct=False),
        (((1,), (3,), (3,)), [3, 3]),
    ),
    _plain(
        "TOPKDISTINCT",
        "The K greatest distinct values in falling order.",
        [f"TOPKDISTINCT(value {kind}, k INTEGER) ARRAY<{kind}>" for kind in ORDERED],
        _top(distinct=True),
        (((1,), (3,), (3,)), [3, 1]),
    ),
    _plain(
        "HISTOGRAM",
        "How often each text occurs, of at most 1000 texts.",
        ["HISTOGRAM(value STRING) MAP<STRING, BIGINT>"],
        _histogram,
        ((("a",), ("b",), ("a",)), {"a": 2, "b": 1}),
    ),
    _plain(
        "ATTR",
        "The value that all rows have, null if they differ.",
        ["ATTR(value T) T"],
        _attribute,
        (((7,), (7,)), 7),
    ),
)


# By offset


class Arrivals:
    """Growing numbers of arriving rows, which also grow over restarts: merged sessions compare them."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        """Return the number of the next row."""
        self._last = max(self._last + 1, self._clock())
        return self._last


def _by_offset(name: str, *, latest: bool) -> AggregateFunction:
    def factory(kinds: Sequence[SqlType], constants: Sequence[Any]) -> AggregateSteps:
        size, ignore_nulls = _options(name, constants)
        keep, read = to_state(kinds[0]), from_state(kinds[0])
        arrivals = Arrivals()
        limit = size or 1

        def cut(state: list[Any]) -> list[Any]:
            return state[-limit:] if latest else state[:limit]

        def add(state: list[Any], value: Any) -> list[Any]:
            if value is None and ignore_nulls:
                return state
            return cut([*state, [arrivals.next(), keep(value)]])

        def merge(one: list[Any], two: list[Any]) -> list[Any]:
            return cut(sorted([*one, *two], key=lambda pair: pair[0]))

        def result(state: list[Any]) -> Any:
            values = [read(value) for _, value in state]
            return values if size else (values[0] if values else None)

        return AggregateSteps(list, add, merge, result, ArrayType(kinds[0]) if size else kinds[0])

    texts = (
        "(value T) T",
        "(value T, ignore_nulls BOOLEAN) T",
        "(value T, n INTEGER) ARRAY<T>",
        "(value T, n INTEGER, ignore_nulls BOOLEAN) ARRAY<T>",
    )
    word = "last" if latest else "first"
    meaning = f"The {word} value to arrive, or an array of the {word} N; nulls count only if ``ignore_nulls`` is false."
    example = (((1,), (2,), (None,)), 2 if latest else 1)
    signatures = tuple(Signature.parse(name + text) for text in texts)
    return AggregateFunction(name, meaning, signatures, (0, 1, 1, 2), factory, can_undo=False, example=example)


def _options(name: str, constants: Sequence[Any]) -> tuple[int, bool]:
    """N, 0 if a single value is wanted, and whether nulls are left out."""
    numbers = [value for value in constants if not isinstance(value, bool)]
    if numbers and numbers[0] < 1:
        raise SqlTypeError(f"{name} must have a positive number of values, not {numbers[0]}")
    return (numbers[0] if numbers else 0), next((value for value in constants if isinstance(value, bool)), True)


OFFSET_AGGREGATES = (_by_offset("EARLIEST_BY_OFFSET", latest=False), _by_offset("LATEST_BY_OFFSET", latest=True))


# Of distinct values

BITS = 12  # 4096 registers: a standard error of 1.6 percent
REGISTERS = 1 << BITS


def _place(value: Any) -> tuple[str, int]:
    """Return the register of a value, and the position of the first bit that is set in the rest of its hash."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    number = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    rest = number >> BITS
    return str(number & (REGISTERS - 1)), (64 - BITS) - rest.bit_length() + 1


def _estimate(state: dict[str, int]) -> int:
    empty = REGISTERS - len(state)
    inverse = empty + sum(2.0**-rank for rank in state.values())
    raw = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS * REGISTERS / inverse
    if raw <= 2.5 * REGISTERS and empty:
        return round(REGISTERS * math.log(REGISTERS / empty))
    return round(raw)


def _count_distinct(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    keep = to_state(kinds[0])

    def add(state: dict[str, int], value: Any) -> dict[str, int]:
        if value is None:
            return state
        register, rank = _place(keep(value))
        return {**state, register: rank} if rank > state.get(register, 0) else state

    def merge(one: dict[str, int], two: dict[str, int]) -> dict[str, int]:
        return {register: max(one.get(register, 0), two.get(register, 0)) for register in one | two}

    return AggregateSteps(dict, add, merge, _estimate, BIGINT)


COUNT_DISTINCT = AggregateFunction(
    "COUNT_DISTINCT",
    "The number of distinct values that are not null, estimated within about 2 percent.",
    (Signature.parse("COUNT_DISTINCT(value ANY) BIGINT"),),
    (0,),
    _count_distinct,
    can_undo=False,
    example=(((1,), (2,), (1,), (None,)), 2),
)


def aggregate_functions(list_limit: int | None = None, set_limit: int | None = None) -> AggregateRegistry:
    """Return the registry of aggregate functions, with the limits of COLLECT_LIST and COLLECT_SET.

    >>> from penstock.sql.types import INTEGER
    >>> aggregate_functions().resolve("topk", [INTEGER, INTEGER], [2]).fold([(1,), (5,), (3,)])
    [5, 3]
    """
    collected = collections(list_limit, set_limit)
    return AggregateRegistry((*NUMBER_AGGREGATES, *VALUE_AGGREGATES, *OFFSET_AGGREGATES, COUNT_DISTINCT, *collected))
