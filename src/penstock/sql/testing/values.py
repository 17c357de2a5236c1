"""Values of cases to values of SQL types, for formats whose bytes need them."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

from penstock.sql.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    StructType,
)
from penstock.sql.types.numbers import fit
from penstock.sql.types.times import date_of, days_of, millis_of_day, time_of

__all__ = ["case_value", "sql_value"]


def sql_value(value: Any, kind: SqlType) -> Any:
    """A value of a case as a value of a type.

    >>> sql_value({"a": 1}, StructType.of(A=DOUBLE))
    {'A': 1.0}
    """
    if value is None:
        return None
    match kind:
        case ArrayType(element):
            return [sql_value(item, element) for item in value]
        case MapType(key, item_kind):
            return {sql_value(k, key): sql_value(v, item_kind) for k, v in value.items()}
        case StructType(fields):
            by_upper = {str(key).upper(): item for key, item in value.items()}
            return {
                field.name: sql_value(value.get(field.name, by_upper.get(field.name.upper())), field.type)
                for field in fields
            }
        case DecimalType():
            return fit(Decimal(str(value)), kind)
    if kind in (INTEGER, BIGINT, TIMESTAMP):
        return int(value)
    if kind == DOUBLE:
        return float(value)
    if kind == STRING:
        return value if isinstance(value, str) else str(value)
    if kind == BYTES:
        return base64.b64decode(value)
    if kind == DATE:
        return date_of(int(value))
    if kind == TIME:
        return time_of(int(value))
    return value


def case_value(value: Any, kind: SqlType) -> Any:
    """A value of a type as cases have it: days and milliseconds as numbers, bytes as base64.

    >>> case_value([b"x"], ArrayType(BYTES))
    ['eA==']
    """
    if value is None:
        return None
    match kind:
        case ArrayType(element):
            return [case_value(item, element) for item in value]
        case MapType(_, inner):
            return {key: case_value(item, inner) for key, item in value.items()}
        case StructType(fields):
            return {field.name: case_value(value.get(field.name), field.type) for field in fields}
    if kind == BYTES:
        return base64.b64encode(value).decode()
    if kind == DATE:
        return days_of(value)
    return millis_of_day(value) if kind == TIME else value
