"""Functions that call a lambda for each element of an array or entry of a map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlValueError

__all__ = ["LAMBDAS"]

LAMBDAS = Family("lambdas")


@LAMBDAS.scalar(
    "TRANSFORM(array ARRAY<T>, each (T) => R) ARRAY<R>",
    examples=[("TRANSFORM(ARRAY[1, 2], x => x * 10)", "ARRAY[10, 20]")],
)
def transform(array: list[Any], each: Callable[[Any], Any]) -> list[Any]:
    """An array of the results of a lambda for each element, or a map of new keys and values."""
    return [each(value) for value in array]


@LAMBDAS.scalar(
    "TRANSFORM(map MAP<K, V>, key (K, V) => R, value (K, V) => S) MAP<R, S>",
    examples=[("TRANSFORM(MAP('a' := 1), (k, v) => UCASE(k), (k, v) => v + 1)", "MAP('A' := 2)")],
)
def transform_map(
    entries: dict[Any, Any], key: Callable[[Any, Any], Any], value: Callable[[Any, Any], Any]
) -> dict[Any, Any]:
    transformed: dict[Any, Any] = {}
    for old_key, old_value in entries.items():
        new_key = key(old_key, old_value)
        if new_key in transformed:
            raise SqlValueError(f"TRANSFORM makes the key {new_key!r} twice")
        transformed[new_key] = value(old_key, old_value)
    return transformed


@LAMBDAS.scalar(
    "FILTER(array ARRAY<T>, keep (T) => BOOLEAN) ARRAY<T>",
    examples=[("FILTER(ARRAY[1, 2, 3], x => x > 1)", "ARRAY[2, 3]")],
)
def filter_(array: list[Any], keep: Callable[[Any], bool]) -> list[Any]:
    """The elements of an array, or entries of a map, for which a lambda is true."""
    return [value for value in array if _decided(keep(value))]


@LAMBDAS.scalar("FILTER(map MAP<K, V>, keep (K, V) => BOOLEAN) MAP<K, V>")
def filter_map(entries: dict[Any, Any], keep: Callable[[Any, Any], bool]) -> dict[Any, Any]:
    return {key: value for key, value in entries.items() if _decided(keep(key, value))}


def _decided(keep: bool | None) -> bool:  # noqa: FBT001  (a value)
    if keep is None:
        raise SqlValueError("the lambda of FILTER is null")
    return keep


@LAMBDAS.scalar(
    "REDUCE(array ARRAY<T>, start S, step (S, T) => S) S",
    nulls=True,
    examples=[("REDUCE(ARRAY[1, 2, 3], 0, (sum, x) => sum + x)", "6")],
)
def reduce(array: list[Any] | None, start: Any, step: Callable[[Any, Any], Any]) -> Any:
    """The result of a lambda called with its result so far and each element; the start where the array is null."""
    if start is None:
        return None
    for value in array or []:
        start = step(start, value)
    return start


@LAMBDAS.scalar("REDUCE(map MAP<K, V>, start S, step (S, K, V) => S) S", nulls=True)
def reduce_map(entries: dict[Any, Any] | None, start: Any, step: Callable[[Any, Any, Any], Any]) -> Any:
    if start is None:
        return None
    for key, value in (entries or {}).items():
        start = step(start, key, value)
    return start
