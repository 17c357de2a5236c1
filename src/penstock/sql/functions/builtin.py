"""All scalar functions, those that choose among values included, and the table functions."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

from penstock.sql.functions.arrays import ARRAYS, LAMBDAS, MAPS
from penstock.sql.functions.bytes_ import BYTES_FUNCTIONS
from penstock.sql.functions.dates import DATES
from penstock.sql.functions.json_functions import JSON_FUNCTIONS
from penstock.sql.functions.maths import GEO, MATHS
from penstock.sql.functions.registry import Family, FunctionRegistry
from penstock.sql.functions.strings import MASKS, REGEX, STRINGS, URLS
from penstock.sql.types import SqlValueError

__all__ = ["scalar_functions", "table_functions"]

CONDITIONAL = Family("conditional")
ORDERED = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP")


@CONDITIONAL.scalar(
    "COALESCE(first T, others T...) T",
    nulls=True,
    examples=[("COALESCE(CAST(NULL AS INTEGER), 2, 3)", "2")],
)
def coalesce(*values: Any) -> Any:
    """The first value that is not null."""
    return next((value for value in values if value is not None), None)


@CONDITIONAL.scalar(
    "IFNULL(value T, otherwise T) T", nulls=True, examples=[("IFNULL(CAST(NULL AS STRING), 'x')", "'x'")]
)
def if_null(value: Any, otherwise: Any) -> Any:
    """A value, or the second one where it is null."""
    return otherwise if value is None else value


@CONDITIONAL.scalar("NULLIF(value T, unwanted T) T", nulls=True, examples=[("NULLIF('a', 'a')", "NULL")])
def null_if(value: Any, unwanted: Any) -> Any:
    """Null where two values are equal, otherwise the first."""
    return None if unwanted is not None and value == unwanted else value


@CONDITIONAL.scalar(
    *(f"GREATEST(first {kind}, others {kind}...) {kind}" for kind in ORDERED),
    nulls=True,
    examples=[("GREATEST(1, 3, 2)", "3"), ("GREATEST('a', NULL, 'b')", "'b'")],
)
def greatest(*values: Any) -> Any:
    """The greatest of the values that are not null."""
    return max((value for value in values if value is not None), default=None)


@CONDITIONAL.scalar(
    *(f"LEAST(first {kind}, others {kind}...) {kind}" for kind in ORDERED),
    nulls=True,
    examples=[("LEAST(1, 3, 2)", "1")],
)
def least(*values: Any) -> Any:
    """The least of the values that are not null."""
    return min((value for value in values if value is not None), default=None)


@CONDITIONAL.scalar("AS_VALUE(key T) T", nulls=True, examples=[("AS_VALUE('k')", "'k'")])
def as_value(key: Any) -> Any:
    """A copy of a key column for the row's value."""
    return key


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


FAMILIES = (
    ARRAYS,
    BYTES_FUNCTIONS,
    CONDITIONAL,
    DATES,
    GEO,
    JSON_FUNCTIONS,
    LAMBDAS,
    MAPS,
    MASKS,
    MATHS,
    REGEX,
    STRINGS,
    URLS,
)


@cache
def scalar_functions() -> FunctionRegistry:
    """Return the registry of all built-in scalar functions.

    >>> from penstock.sql.types import INTEGER, STRING
    >>> bound = scalar_functions().resolve("lpad", [STRING, INTEGER, STRING])
    >>> str(bound.type), bound.call("7", 3, "0")
    ('STRING', '007')
    """
    return FunctionRegistry(FAMILIES)
