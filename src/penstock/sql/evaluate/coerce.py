"""Items of one type: of IN, ARRAY, MAP, GREATEST. The first that is not null decides how literals are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from penstock.sql.evaluate.placed_errors import refused
from penstock.sql.evaluate.typed import Constant, Convert, Entry, MakeArray, MakeMap, MakeStruct, Typed
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
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
    SqlValueError,
    StructType,
)
from penstock.sql.types.casts import cast, parse_boolean
from penstock.sql.types.coercion import common_type_of
from penstock.sql.types.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, parse_decimal
from penstock.sql.types.sql_type import is_numeric
from penstock.sql.types.texts import to_text

__all__ = ["Shown", "converted", "decimal_of", "fixed", "united"]

Shown = Callable[[Typed], str]  # the text of an item, for messages
BOOLEANS = ("true", "yes", "false", "no")
HINT = "CAST one side to the type of the other."


def united(items: Sequence[Typed], shown: Shown) -> tuple[SqlType, tuple[Typed, ...]]:
    """Return the common type of items, and the items converted to it.

    Texts that are literals become what the first item is that is not null; numbers widen; structs unite their fields.

    Raises:
        SqlError: An item cannot have the type of the others.
    """
    first = next((item.type for item in items if item.type != NULL), NULL)
    fitted = [_fitted(item, first, shown) for item in items]
    kind = common_type_of(item.type for item in fitted)
    return kind, tuple(converted(item, kind) for item in fitted)


def converted(item: Typed, kind: SqlType) -> Typed:
    """Return the item as one of a type to which its own widens, or that unites its fields with others."""
    if item.type in (kind, NULL):
        return item
    if isinstance(item, Constant):
        return Constant(kind, cast(item.value, item.type, kind), at=item.at)
    return Convert(kind, item, at=item.at)


def fixed(item: Typed, kind: SqlType, shown: Shown) -> Typed:
    """Return a literal text as a constant of a type; all else as it is."""
    is_text = isinstance(item, Constant) and item.type == STRING and kind not in (STRING, NULL)
    return _fitted(item, kind, shown) if is_text else item


def _fitted(item: Typed, target: SqlType, shown: Shown) -> Typed:
    if item.type in (NULL, target):
        return item
    if isinstance(item, Constant) and STRING in (item.type, target):
        literal = _literal(item, target)
        if literal is not None:
            return literal
    match item, target:
        case MakeArray(), ArrayType(element):
            items = tuple(_fitted(part, element, shown) for part in item.items)
            kind, parts = _common(items)
            return replace(item, type=ArrayType(kind), items=parts)
        case MakeMap(), MapType(key, value):
            key_kind, keys = _common([_fitted(entry.key, key, shown) for entry in item.entries])
            kind, values = _common([_fitted(entry.value, value, shown) for entry in item.entries])
            entries = tuple(Entry(*pair) for pair in zip(keys, values, strict=True))
            return replace(item, type=MapType(key_kind, kind), entries=entries)
        case MakeStruct(StructType(fields)), StructType():
            parts = tuple(
                _fitted(part, target.field(field.name) or part.type, shown)
                for field, part in zip(fields, item.values, strict=True)
            )
            names = [field.name for field in fields]
            kind = StructType.of([(name, part.type) for name, part in zip(names, parts, strict=True)])
            item = replace(item, type=kind, values=parts)
    try:
        common_type_of((target, item.type))
    except SqlTypeError as error:
        raise refused(
            f"= does not compare {target} with {item.type}, the type of {shown(item)}", item.at, HINT
        ) from error
    return item


def _common(items: Sequence[Typed]) -> tuple[SqlType, tuple[Typed, ...]]:
    kind = common_type_of(item.type for item in items)
    return kind, tuple(converted(item, kind) for item in items)


def _literal(item: Constant, target: SqlType) -> Constant | None:
    """Return a literal as another type; ``None`` if there is no such adaptation."""
    if target == STRING:
        plain = is_numeric(item.type) or item.type == BOOLEAN
        return Constant(STRING, to_text(item.value, item.type), at=item.at) if plain else None
    try:
        type_and_value = _parsed(item.value, target)
    except SqlValueError as error:
        raise refused(f'the text "{item.value}" is not a value of type {target}.', item.at) from error
    return type_and_value and Constant(*type_and_value, at=item.at)


def _parsed(text: str, target: SqlType) -> tuple[SqlType, Any] | None:
    if target == BOOLEAN:
        if not text or not any(word.startswith(text.strip().lower()) for word in BOOLEANS):
            raise SqlValueError(f"{text!r} is not a boolean")
        return BOOLEAN, parse_boolean(text)
    if is_numeric(target):
        return _number(text)
    if target in (DATE, TIME, TIMESTAMP):
        return target, cast(text, STRING, target)
    return None


def _number(text: str) -> tuple[SqlType, Any]:
    number = parse_decimal(text)
    if text.strip().lstrip("+-").isdigit():
        whole = int(number)
        if INT_MIN <= whole <= INT_MAX:
            return INTEGER, whole
        if LONG_MIN <= whole <= LONG_MAX:
            return BIGINT, whole
    _, digits, exponent = number.as_tuple()
    scale = max(0, -int(exponent))
    whole_digits = max(1, len(digits) + int(exponent))
    return DecimalType(whole_digits + scale, scale), number.quantize(Decimal(1).scaleb(-scale))


def decimal_of(text: str) -> Constant:
    """Return a literal with a point: its digits are precision and scale, with at least one digit before the point.

    >>> str(decimal_of("0.005").type), str(decimal_of("-1.50").type)
    ('DECIMAL(4, 3)', 'DECIMAL(3, 2)')
    """
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale + 1)
    return Constant(DecimalType(precision, scale), number or abs(number))
