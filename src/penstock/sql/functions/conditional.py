"""Functions that choose among values: nulls, the greatest, the least."""

from __future__ import annotations

from typing import Any

from penstock.sql.functions.registry import Family

__all__ = ["CONDITIONAL"]

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
