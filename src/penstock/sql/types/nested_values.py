"""Conversion of arrays, maps and structs by the conversions of the values within them: one fold over nested types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import methodcaller
from typing import Any

from penstock.sql.types.sql_type import ArrayType, MapType, SqlType, StructType

__all__ = ["Conversion", "nested_conversion"]

Conversion = Callable[[Any], Any]


def _by_name(row: Mapping[str, Any], names: tuple[str, ...]) -> Iterable[Any]:
    return [row.get(name) for name in names]


def nested_conversion(
    kind: SqlType,
    conversion: Callable[[SqlType], Conversion],
    *,
    elements: Callable[[Any], Iterable[Any]] = iter,
    entries: Callable[[Any], Iterable[tuple[Any, Any]]] = methodcaller("items"),
    members: Callable[[Any, tuple[str, ...]], Iterable[Any]] = _by_name,
    convert_keys: bool = True,
) -> Conversion | None:
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
