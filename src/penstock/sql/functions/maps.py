"""Functions of maps."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from penstock.sql.functions.registry import Family

__all__ = ["MAPS"]

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
