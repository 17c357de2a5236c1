"""Python objects as a Polars series, without the guesses that would lose some of them.

Polars takes the fields of a struct from the first dict, and the numbers of a list from the first list; what later ones
have beyond that is dropped or cut off. So dicts are given each other's fields first, and nested values are compared.
"""

from __future__ import annotations

from typing import Any

import polars as pl

__all__ = ["series_of_items"]


def series_of_items(items: list[Any]) -> tuple[pl.Series, bool]:
    """Return the series, and whether dicts had to get fields (as nulls) that only others have.

    Raises:
        TypeError, ValueError, PolarsError: The values have no common type.
    """
    kinds = set(map(type, items))
    if dict not in kinds:
        return _checked(pl.Series("", items, strict=True), items), False
    if not kinds <= {dict, type(None)}:
        raise TypeError(f"dicts are mixed with {', '.join(sorted(kind.__name__ for kind in kinds - {dict}))}")
    first = next(item for item in items if item is not None).keys()
    if all(item is None or item.keys() == first for item in items):
        series = pl.Series("", items, strict=True)
        if not _is_nested(series.dtype) or _same(series.to_list(), items):
            return _checked(series, items), False
    filled = _with_all_fields(items)
    series = pl.Series("", filled, strict=True)
    if not _same(series.to_list(), filled):
        raise TypeError("nested values differ in their types")
    return _checked(series, items), filled != items


def _checked(series: pl.Series, items: list[Any]) -> pl.Series:
    if series.dtype == pl.Object:
        odd = next(item for item in items if item is not None)
        raise TypeError(f"values of type {type(odd).__name__}")
    if isinstance(series.dtype, pl.List | pl.Array) and not _same(series.to_list(), items):
        raise TypeError("lists differ in their types")
    return series


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are equal; a tuple is a list, and NaN is NaN."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    return bool(left == right or (left != left and right != right))  # noqa: PLR0124


def _is_nested(dtype: Any) -> bool:
    return any(isinstance(field.dtype, pl.Struct | pl.List | pl.Array) for field in dtype.fields)


def _with_all_fields(values: list[Any]) -> list[Any]:
    """Return the values with all dicts, and those inside them, extended by the fields that any of their kind has."""
    dicts = [value for value in values if isinstance(value, dict)]
    if dicts:
        names = list(dict.fromkeys(name for one in dicts for name in one))
        columns = [_with_all_fields([one.get(name) for one in dicts]) for name in names]
        rows = iter([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or [{}] * len(dicts))
        return [next(rows) if isinstance(value, dict) else value for value in values]
    if any(isinstance(value, list) for value in values):
        flat = iter(_with_all_fields([inner for value in values if isinstance(value, list) for inner in value]))
        return [[next(flat) for _ in value] if isinstance(value, list) else value for value in values]
    return values
