"""EARLIEST_BY_OFFSET and LATEST_BY_OFFSET: the first and last values in the order in which rows arrived."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.sql.functions.aggregates.definition import AggregateFunction, AggregateSteps
from penstock.sql.functions.aggregates.states import from_state, to_state
from penstock.sql.functions.patterns import Signature
from penstock.sql.types import ArrayType, SqlType, SqlTypeError

__all__ = ["OFFSET_AGGREGATES", "Arrivals"]


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
