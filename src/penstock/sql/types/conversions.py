"""Conversions: which type widens to which, CAST, and values of nested types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import reduce
from operator import methodcaller
from typing import Any

from penstock.sql.types.numbers import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    fit,
    parse_decimal,
    parse_double,
    parse_whole,
    saturate,
    wrap_int,
    wrap_long,
)
from penstock.sql.types.sql_type import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    SqlTypeError,
    StructType,
    is_numeric,
)
from penstock.sql.types.texts import (
    DAY_MS,
    date_of,
    days_of,
    parse_date,
    parse_time,
    parse_timestamp,
    text_function,
    time_of_day,
)

__all__ = [
    "as_decimal",
    "cast",
    "cast_function",
    "common_type",
    "common_type_of",
    "nested_conversion",
    "parse_boolean",
    "widening",
    "widens",
]

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


Convert = Callable[[Any], Any]


def _by_name(row: Mapping[str, Any], names: tuple[str, ...]) -> Iterable[Any]:
    return [row.get(name) for name in names]


def nested_conversion(
    kind: SqlType,
    conversion: Callable[[SqlType], Convert],
    *,
    elements: Callable[[Any], Iterable[Any]] = iter,
    entries: Callable[[Any], Iterable[tuple[Any, Any]]] = methodcaller("items"),
    members: Callable[[Any, tuple[str, ...]], Iterable[Any]] = _by_name,
    convert_keys: bool = True,
) -> Convert | None:
    """Return the conversion of a type that holds others, whose values are lists and dicts; None for all other types.

    Args:
        kind: The type.
        conversion: Returns the conversion of a type within it.
        elements: Returns the elements of an array.
        entries: Returns the keys and values of a map.
        members: Returns the values of a struct's fields, in the order of their names.
        convert_keys: Whether the keys of maps are converted too.

    >>> from penstock.sql.types import BIGINT, STRING
    >>> def doubled(kind):
    ...     return nested_conversion(kind, doubled) or (lambda value: value * 2)
    >>> doubled(MapType(STRING, ArrayType(BIGINT)))({"a": [1, 2]}), doubled(StructType.of(N=BIGINT))({"N": 4})
    ({'aa': [2, 4]}, {'N': 8})
    """
    match kind:
        case ArrayType(element):
            of_element = conversion(element)
            return lambda value: [of_element(each) for each in elements(value)]
        case MapType(key, held):
            of_value = conversion(held)
            if not convert_keys:
                return lambda value: {name: of_value(each) for name, each in entries(value)}
            of_key = conversion(key)
            return lambda value: {of_key(name): of_value(each) for name, each in entries(value)}
        case StructType(fields):
            names = tuple(field.name for field in fields)
            steps = [(field.name, conversion(field.type)) for field in fields]
            return lambda value: {
                name: of_field(each) for (name, of_field), each in zip(steps, members(value, names), strict=True)
            }
    return None


def parse_boolean(text: str) -> bool:
    """Return text as a boolean: any beginning of ``true`` or ``yes`` is true, in any case; all else is false.

    >>> parse_boolean("T"), parse_boolean("ye"), parse_boolean("on")
    (True, True, False)
    """
    lowered = text.strip().lower()
    return bool(lowered) and ("true".startswith(lowered) or "yes".startswith(lowered))


SIMPLE: dict[tuple[SqlType, SqlType], Convert] = {
    (STRING, BOOLEAN): parse_boolean,
    (STRING, INTEGER): lambda text: parse_whole(text, INT_MIN, INT_MAX),
    (STRING, BIGINT): lambda text: parse_whole(text, LONG_MIN, LONG_MAX),
    (STRING, DOUBLE): parse_double,
    (STRING, DATE): parse_date,
    (STRING, TIME): parse_time,
    (STRING, TIMESTAMP): parse_timestamp,
    (BIGINT, INTEGER): wrap_int,
    (INTEGER, BIGINT): int,
    (INTEGER, DOUBLE): float,
    (BIGINT, DOUBLE): float,
    (DOUBLE, INTEGER): lambda value: saturate(value, INT_MIN, INT_MAX),
    (DOUBLE, BIGINT): lambda value: saturate(value, LONG_MIN, LONG_MAX),
    (TIMESTAMP, DATE): lambda value: date_of(value // DAY_MS),
    (TIMESTAMP, TIME): time_of_day,
    (DATE, TIMESTAMP): lambda value: days_of(value) * DAY_MS,
}
FROM_DECIMAL: dict[SqlType, Convert] = {
    INTEGER: lambda value: wrap_int(int(value)),
    BIGINT: lambda value: wrap_long(int(value)),
    DOUBLE: float,
}


def cast_function(source: SqlType, target: SqlType) -> Convert:
    """Return the conversion of values by ``CAST(... AS target)``; null stays null.

    >>> cast_function(BIGINT, INTEGER)(2**31)
    -2147483648
    >>> cast_function(STRING, DecimalType(2, 1))("0.99")
    Decimal('1.0')

    Raises:
        SqlTypeError: there is no such cast. The conversion itself raises `SqlValueError` for values that do not fit.
    """
    convert = _convert(source, target)
    return lambda value: None if value is None else convert(value)


def cast(value: Any, source: SqlType, target: SqlType) -> Any:
    """Cast one value."""
    return cast_function(source, target)(value)


def _convert(source: SqlType, target: SqlType) -> Convert:
    if source in (target, NULL):
        return lambda value: value
    if (convert := SIMPLE.get((source, target))) is not None:
        return convert
    if target == STRING and source != BYTES:
        return text_function(source)
    match source, target:
        case DecimalType(), _ if target in FROM_DECIMAL:
            return FROM_DECIMAL[target]
        case _, DecimalType() if source == STRING:
            return lambda text: fit(parse_decimal(text), target)
        case _, DecimalType() if is_numeric(source):
            return lambda value: _fit(value, target)
        case ArrayType(inner), ArrayType(outer):
            item = cast_function(inner, outer)
            return lambda values: [item(value) for value in values]
        case MapType(key, value), MapType(other_key, other_value):
            left, right = cast_function(key, other_key), cast_function(value, other_value)
            return lambda values: {left(k): right(v) for k, v in values.items()}
        case StructType(), StructType(fields):
            members = [(f.name, source.field(f.name), f.type) for f in fields]
            steps = [(name, cast_function(old or NULL, new)) for name, old, new in members]
            held = {name for name, old, _ in members if old is not None}
            return lambda row: {name: step(row.get(name)) if name in held else None for name, step in steps}
    raise SqlTypeError(f"No CAST turns {source} into {target}")


def _fit(value: float | Decimal, target: DecimalType) -> Decimal:
    return fit(value, target)
