"""Implicit conversions: which type widens to which, the common type of several, and the conversion of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import reduce
from typing import Any

from penstock.sql.types.numbers import fit
from penstock.sql.types.sql_type import (
    BIGINT,
    DOUBLE,
    INTEGER,
    NULL,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    StructType,
    is_numeric,
)
from penstock.sql.types.type_errors import SqlTypeError

__all__ = ["as_decimal", "common_type", "common_type_of", "widens", "widening"]

RANKS: dict[SqlType, int] = {INTEGER: 0, BIGINT: 1, DOUBLE: 3}


def as_decimal(kind: SqlType) -> DecimalType:
    """Return the decimal type that holds all values of an exact number type.

    >>> str(as_decimal(BIGINT))
    'DECIMAL(19, 0)'
    """
    if isinstance(kind, DecimalType):
        return kind
    if kind == INTEGER:
        return DecimalType(10, 0)
    if kind == BIGINT:
        return DecimalType(19, 0)
    raise SqlTypeError(f"{kind} has no decimal type")


def widens(source: SqlType, target: SqlType) -> bool:
    """Return whether values of one type are taken as another without a cast.

    >>> widens(INTEGER, BIGINT), widens(DOUBLE, BIGINT), widens(INTEGER, DecimalType(4, 0))
    (True, False, False)
    """
    if source in (target, NULL):
        return True
    match source, target:
        case ArrayType(inner), ArrayType(outer):
            return widens(inner, outer)
        case MapType(key, value), MapType(other_key, other_value):
            return widens(key, other_key) and widens(value, other_value)
        case StructType(fields), StructType():
            target_types = [target.field(field.name) for field in fields]
            return all(kind and widens(field.type, kind) for field, kind in zip(fields, target_types, strict=True))
    if not (is_numeric(source) and is_numeric(target)):
        return False
    if isinstance(target, DecimalType):
        if source == DOUBLE:
            return False
        exact = as_decimal(source)
        return exact.scale <= target.scale and exact.precision - exact.scale <= target.precision - target.scale
    return RANKS.get(source, 2) < RANKS[target]


def common_type(left: SqlType, right: SqlType) -> SqlType:
    """Return the narrowest type that both widen to; structs unite their fields.

    >>> str(common_type(INTEGER, DecimalType(4, 2))), str(common_type(ArrayType(INTEGER), ArrayType(DOUBLE)))
    ('DECIMAL(12, 2)', 'ARRAY<DOUBLE>')
    """
    if left in (right, NULL):
        return right
    if right == NULL:
        return left
    match left, right:
        case ArrayType(one), ArrayType(two):
            return ArrayType(common_type(one, two))
        case MapType(key, value), MapType(other_key, other_value):
            return MapType(common_type(key, other_key), common_type(value, other_value))
        case StructType(), StructType():
            return _united(left, right)
    if not (is_numeric(left) and is_numeric(right)):
        raise SqlTypeError(f"no common type of {left} and {right}: cast one of them")
    if DOUBLE in (left, right):
        return DOUBLE
    if not isinstance(left, DecimalType) and not isinstance(right, DecimalType):
        return BIGINT
    one, two = as_decimal(left), as_decimal(right)
    scale = max(one.scale, two.scale)
    return DecimalType(max(one.precision - one.scale, two.precision - two.scale) + scale, scale)


def common_type_of(kinds: Iterable[SqlType]) -> SqlType:
    """Return the common type of several; of none it is that of NULL."""
    start: SqlType = NULL
    return reduce(common_type, kinds, start)


def widening(source: SqlType, target: SqlType) -> Callable[[Any], Any] | None:
    """Return the conversion of values to a wider type; ``None`` if they stay as they are.

    >>> widening(INTEGER, DOUBLE)(3)
    3.0
    """
    if source in (target, NULL):
        return None
    if not widens(source, target):
        raise SqlTypeError(f"{source} does not widen to {target}")
    convert: Callable[[Any], Any] | None = None
    match source, target:
        case ArrayType(inner), ArrayType(outer):
            item = widening(inner, outer)
            convert = item and (lambda values: [item(value) for value in values])
        case MapType(key, value), MapType(other_key, other_value):
            left, right = widening(key, other_key) or _same, widening(value, other_value) or _same
            convert = lambda values: {left(k): right(v) for k, v in values.items()}  # noqa: E731
        case StructType(fields), StructType(target_fields):
            steps = {f.name: widening(f.type, target.field(f.name) or f.type) or _same for f in fields}
            names = [f.name for f in target_fields]
            convert = lambda row: {n: steps[n](row.get(n)) if n in steps else None for n in names}  # noqa: E731
        case _, DecimalType():
            convert = lambda value: fit(value, target)  # noqa: E731
        case _ if target == DOUBLE:
            convert = _double
    if convert is None:
        return None
    convert_value = convert
    return lambda value: None if value is None else convert_value(value)


def _united(left: StructType, right: StructType) -> StructType:
    kinds = {field.name: field.type for field in left.fields}
    for field in right.fields:
        kinds[field.name] = common_type(kinds.get(field.name, NULL), field.type)
    return StructType.of(kinds.items())


def _same(value: Any) -> Any:
    return value


def _double(value: int | Decimal) -> float:
    return float(value)
