"""Functions of arrays and maps, and those that call a lambda for each element or entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any

from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlValueError

__all__ = ["ARRAYS", "LAMBDAS", "MAPS", "element_key"]

ARRAYS = Family("arrays")
MAX_SERIES = 10_000_000
SORTABLE = ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP")


def element_key(value: Any) -> Any:
    """Return a hashable form of a value, equal for equal values."""
    if isinstance(value, list):
        return (list, tuple(element_key(item) for item in value))
    if isinstance(value, dict):
        return (dict, frozenset((key, element_key(item)) for key, item in value.items()))
    return (type(value), value)


def _unique(values: Iterable[Any]) -> list[Any]:
    values_by_key: dict[Any, Any] = {}
    for value in values:
        values_by_key.setdefault(element_key(value), value)
    return list(values_by_key.values())


@ARRAYS.scalar("ARRAY_LENGTH(array ARRAY<T>) INTEGER", examples=[("ARRAY_LENGTH(ARRAY[1, NULL])", "2")])
def array_length(array: list[Any]) -> int:
    """The number of elements of an array."""
    return len(array)


@ARRAYS.scalar(
    "ARRAY_CONTAINS(array ARRAY<T>, value T) BOOLEAN",
    nulls=True,
    examples=[("ARRAY_CONTAINS(ARRAY[1, 2], 2)", "true")],
    aliases=("ARRAYCONTAINS",),
)
def array_contains(array: list[Any] | None, value: Any) -> bool:
    """Whether an array holds a value, which may be null; false for a null array."""
    return array is not None and value in array


@ARRAYS.scalar("ARRAY_DISTINCT(array ARRAY<T>) ARRAY<T>", examples=[("ARRAY_DISTINCT(ARRAY[2, 1, 2])", "ARRAY[2, 1]")])
def array_distinct(array: list[Any]) -> list[Any]:
    """The distinct elements of an array, in the order of their first occurrence."""
    return _unique(array)


@ARRAYS.scalar(
    "ARRAY_EXCEPT(left ARRAY<T>, right ARRAY<T>) ARRAY<T>",
    examples=[("ARRAY_EXCEPT(ARRAY[1, 2, 3, 1], ARRAY[2])", "ARRAY[1, 3]")],
)
def array_except(left: list[Any], right: list[Any]) -> list[Any]:
    """The distinct elements of the first array that are not in the second."""
    unwanted = {element_key(value) for value in right}
    return _unique(value for value in left if element_key(value) not in unwanted)


@ARRAYS.scalar(
    "ARRAY_INTERSECT(left ARRAY<T>, right ARRAY<T>) ARRAY<T>",
    examples=[("ARRAY_INTERSECT(ARRAY[1, 2, 3, 1], ARRAY[3, 1])", "ARRAY[1, 3]")],
)
def array_intersect(left: list[Any], right: list[Any]) -> list[Any]:
    """The distinct elements of the first array that are in the second too."""
    right_keys = {element_key(value) for value in right}
    return _unique(value for value in left if element_key(value) in right_keys)


@ARRAYS.scalar(
    "ARRAY_UNION(left ARRAY<T>, right ARRAY<T>) ARRAY<T>",
    examples=[("ARRAY_UNION(ARRAY[1, 2], ARRAY[2, 3])", "ARRAY[1, 2, 3]")],
)
def array_union(left: list[Any], right: list[Any]) -> list[Any]:
    """The distinct elements of two arrays."""
    return _unique([*left, *right])


@ARRAYS.scalar(
    "ARRAY_CONCAT(left ARRAY<T>, right ARRAY<T>) ARRAY<T>",
    nulls=True,
    examples=[("ARRAY_CONCAT(ARRAY[1, 2], ARRAY[2])", "ARRAY[1, 2, 2]")],
)
def array_concat(left: list[Any] | None, right: list[Any] | None) -> list[Any] | None:
    """The elements of two arrays one after the other; a null array counts as empty, two as null."""
    return None if left is None and right is None else [*(left or []), *(right or [])]


@ARRAYS.scalar(
    "ARRAY_REMOVE(array ARRAY<T>, value T) ARRAY<T>",
    nulls=True,
    examples=[("ARRAY_REMOVE(ARRAY[1, 2, 1], 1)", "ARRAY[2]")],
)
def array_remove(array: list[Any] | None, value: Any) -> list[Any] | None:
    """An array without the elements that equal a value, which may be null."""
    return None if array is None else [item for item in array if item != value]


@ARRAYS.scalar(
    *(f"ARRAY_MAX(array ARRAY<{kind}>) {kind}" for kind in SORTABLE), examples=[("ARRAY_MAX(ARRAY[1, NULL, 3])", "3")]
)
def array_max(array: list[Any]) -> Any:
    """The greatest element of an array that is not null."""
    return max((value for value in array if value is not None), default=None)


@ARRAYS.scalar(
    *(f"ARRAY_MIN(array ARRAY<{kind}>) {kind}" for kind in SORTABLE), examples=[("ARRAY_MIN(ARRAY[1, NULL, 3])", "1")]
)
def array_min(array: list[Any]) -> Any:
    """The least element of an array that is not null."""
    return min((value for value in array if value is not None), default=None)


@ARRAYS.scalar(
    *(f"ARRAY_SORT(array ARRAY<{kind}>) ARRAY<{kind}>" for kind in SORTABLE),
    *(f"ARRAY_SORT(array ARRAY<{kind}>, direction STRING) ARRAY<{kind}>" for kind in SORTABLE),
    examples=[
        ("ARRAY_SORT(ARRAY[2, NULL, 1])", "ARRAY[1, 2, NULL]"),
        ("ARRAY_SORT(ARRAY[1, 2], 'DESC')", "ARRAY[2, 1]"),
    ],
)
def array_sort(array: list[Any], direction: str = "ASC") -> list[Any] | None:
    """The elements of an array in order, ascending or ``'DESC'``; nulls are last."""
    order = direction.strip().upper()
    if order not in ("ASC", "ASCENDING", "DESC", "DESCENDING"):
        return None
    values = sorted((value for value in array if value is not None), reverse=order.startswith("DESC"))
    return values + [None] * (len(array) - len(values))


@ARRAYS.scalar(
    "SLICE(array ARRAY<T>, first INTEGER, last INTEGER) ARRAY<T>",
    nulls=True,
    examples=[("SLICE(ARRAY['a', 'b', 'c', 'd'], 2, 3)", "ARRAY['b', 'c']")],
)
def slice_(array: list[Any] | None, first: int | None, last: int | None) -> list[Any] | None:
    """The elements of an array from one position up to another, both included; a null one leaves that side open."""
    if array is None:
        return None
    start, end = (1 if first is None else first) - 1, len(array) if last is None else last
    if start < 0 or end > len(array) or start > end:
        return None
    return array[start:end]


@ARRAYS.scalar(
    "GENERATE_SERIES(first INTEGER, last INTEGER) ARRAY<INTEGER>",
    "GENERATE_SERIES(first INTEGER, last INTEGER, step INTEGER) ARRAY<INTEGER>",
    "GENERATE_SERIES(first BIGINT, last BIGINT) ARRAY<BIGINT>",
    "GENERATE_SERIES(first BIGINT, last BIGINT, step INTEGER) ARRAY<BIGINT>",
    examples=[("GENERATE_SERIES(1, 7, 3)", "ARRAY[1, 4, 7]"), ("GENERATE_SERIES(3, 1)", "ARRAY[3, 2, 1]")],
)
def generate_series(first: int, last: int, step: int | None = None) -> list[int]:
    """The numbers from one to another, both included, by a step."""
    by = (1 if last >= first else -1) if step is None else step
    if by == 0:
        raise SqlValueError("the step of GENERATE_SERIES must not be 0")
    if (last - first) * by < 0:
        raise SqlValueError(f"the step of GENERATE_SERIES has the wrong sign: {by}")
    numbers = range(first, last + (1 if by > 0 else -1), by)
    if len(numbers) > MAX_SERIES:
        raise SqlValueError(f"GENERATE_SERIES would have {len(numbers)} elements: at most {MAX_SERIES}")
    return list(numbers)


@ARRAYS.scalar("ELT(position INTEGER, texts STRING...) STRING", nulls=True, examples=[("ELT(2, 'a', 'b')", "'b'")])
def elt(position: int | None, *texts: str | None) -> str | None:
    """The text at a position among the others; null if there is none."""
    return texts[position - 1] if position is not None and 1 <= position <= len(texts) else None


@ARRAYS.scalar("FIELD(text STRING, texts STRING...) INTEGER", nulls=True, examples=[("FIELD('b', 'a', 'b')", "2")])
def field(text: str | None, *texts: str | None) -> int:
    """The position of a text among others, 0 if it is not there."""
    return texts.index(text) + 1 if text is not None and text in texts else 0


MAPS = Family("maps")
EXAMPLE = "MAP('a' := 1, 'b' := 2)"


@MAPS.scalar("MAP_KEYS(map MAP<K, V>) ARRAY<K>", examples=[(f"MAP_KEYS({EXAMPLE})", "ARRAY['a', 'b']")])
def map_keys(entries: dict[Any, Any]) -> list[Any]:
    """The keys of a map."""
    return list(entries)


@MAPS.scalar("MAP_VALUES(map MAP<K, V>) ARRAY<V>", examples=[(f"MAP_VALUES({EXAMPLE})", "ARRAY[1, 2]")])
def map_values(entries: dict[Any, Any]) -> list[Any]:
    """The values of a map."""
    return list(entries.values())


@MAPS.scalar(
    "MAP_UNION(left MAP<K, V>, right MAP<K, V>) MAP<K, V>",
    nulls=True,
    examples=[("MAP_UNION(MAP('a' := 1), MAP('a' := 2))", "MAP('a' := 2)")],
)
def map_union(left: dict[Any, Any] | None, right: dict[Any, Any] | None) -> dict[Any, Any] | None:
    """The entries of two maps, the second one's where both have a key; a null map counts as empty, two as null."""
    return None if left is None and right is None else {**(left or {}), **(right or {})}


@MAPS.scalar(
    "AS_MAP(keys ARRAY<STRING>, values ARRAY<V>) MAP<STRING, V>",
    examples=[("AS_MAP(ARRAY['a', 'b'], ARRAY[1, 2])", EXAMPLE)],
)
def as_map(keys: list[str], values: list[Any]) -> dict[str, Any]:
    """A map of an array of keys and one of values; keys without a value have null."""
    return dict(zip_longest(keys, values[: len(keys)]))


@MAPS.scalar(
    "ENTRIES(map MAP<STRING, V>, sorted BOOLEAN) ARRAY<STRUCT<K STRING, V V>>",
    examples=[("ENTRIES(MAP('b' := 1), true)", "ARRAY[STRUCT(K := 'b', V := 1)]")],
)
def entries(map_: dict[str, Any], is_sorted: bool) -> list[dict[str, Any]]:  # noqa: FBT001  (an SQL argument)
    """The entries of a map as structs with the fields K and V, by key if they are to be sorted."""
    pairs = sorted(map_.items(), key=lambda pair: pair[0]) if is_sorted else list(map_.items())
    return [{"K": key, "V": value} for key, value in pairs]


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
