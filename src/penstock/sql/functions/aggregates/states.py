"""Values in states as JSON has them: decimals, dates, times and bytes as text or numbers, and back."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.sql.types import BYTES, DATE, DOUBLE, TIME, DecimalType, SqlType
from penstock.sql.types.nested_values import nested_conversion
from penstock.sql.types.numbers import decimal_text, double_text
from penstock.sql.types.times import date_of, days_of, millis_of_day, time_of

__all__ = ["from_state", "to_state"]

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
