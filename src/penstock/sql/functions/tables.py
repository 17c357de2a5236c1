"""Table functions: one row in, any number of rows out. Their results are lists, one element for each row."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

from penstock.sql.functions.registry import Family, FunctionRegistry
from penstock.sql.types import SqlValueError

__all__ = ["table_functions"]

TABLES = Family("table functions")
MAX_CUBED = 20  # elements: their combinations double with each


@TABLES.scalar("EXPLODE(array ARRAY<T>) T", nulls=True, examples=[("EXPLODE(ARRAY[1, 2])", "ARRAY[1, 2]")])
def explode(array: list[Any] | None) -> list[Any]:
    """One row for each element of an array; none for an empty or null one."""
    return list(array or [])


@TABLES.scalar(
    "CUBE_EXPLODE(array ARRAY<T>) ARRAY<T>",
    nulls=True,
    examples=[("CUBE_EXPLODE(ARRAY[1, NULL])", "ARRAY[ARRAY[NULL, NULL], ARRAY[1, NULL]]")],
)
def cube_explode(array: list[Any] | None) -> list[list[Any]]:
    """One row for each way of putting null in place of elements of an array."""
    if array is None:
        return []
    if len(array) > MAX_CUBED:
        raise SqlValueError(
            f"CUBE_EXPLODE of {len(array)} elements would make 2^{len(array)} rows: at most {MAX_CUBED}"
        )
    return [list(row) for row in product(*([None] if value is None else [None, value] for value in array))]


@cache
def table_functions() -> FunctionRegistry:
    """Return the registry of table functions; the type of a bound one is that of a row.

    >>> from penstock.sql.types import INTEGER, ArrayType
    >>> table_functions().resolve("EXPLODE", [ArrayType(INTEGER)]).call([1, 2])
    [1, 2]
    """
    return FunctionRegistry([TABLES])
