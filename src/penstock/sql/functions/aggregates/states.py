"""Values in states as JSON has them: decimals, dates, times and bytes as text or numbers, and back."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.sql.types import BYTES, DATE, DOUBLE, TIME, ArrayType, DecimalType, MapType, SqlType, StructType
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
    inner: Convert
    match kind:
        case DecimalType():
            inner = exact
        case ArrayType(element):
            item = again(element)
            inner = lambda values: [item(value) for value in values]  # noqa: E731
        case MapType(key, value_kind):
            left, right = again(key), again(value_kind)
            inner = lambda values: {left(k): right(v) for k, v in values.items()}  # noqa: E731
        case StructType(fields):
            steps = [(field.name, again(field.type)) for field in fields]
            inner = lambda row: {name: step(row.get(name)) for name, step in steps}  # noqa: E731
        case _ if kind in plain:
            inner = plain[kind]
        case _:
            return lambda value: value
    return lambda value: None if value is None else inner(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _double(value: float) -> float | str:
    return value if value - value == 0 else double_text(value)  # JSON has no NaN and no infinity
