"""Types of JSON values, and the type that takes the values of several."""

from __future__ import annotations

import re
from typing import Any

from penstock.sql.types import BIGINT, BOOLEAN, DOUBLE, NULL, STRING, ArrayType, MapType, SqlType, StructType
from penstock.sql.types.sql_type import with_inner_types

__all__ = ["known", "merged", "type_of"]

MAX_DEPTH = 20  # deeper values are texts
MAX_FIELDS = 100  # objects with more names are maps
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def type_of(value: Any, depth: int = 0) -> SqlType:
    """The type of a JSON value; that of null is open.

    >>> str(type_of({"id": 1, "tags": ["a", None]}))
    'STRUCT<`id` BIGINT, `tags` ARRAY<STRING>>'
    """
    if depth > MAX_DEPTH:
        return STRING
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return BIGINT if -(2**63) <= value < 2**63 else DOUBLE
        case float():
            return DOUBLE
        case list():
            found: SqlType = NULL
            for item in value:
                found = merged(found, type_of(item, depth + 1))
            return ArrayType(found)
        case dict():
            fields = [(name, type_of(item, depth + 1)) for name, item in value.items()]
            return _object(fields)
    return STRING


def _object(fields: list[tuple[str, SqlType]]) -> SqlType:
    """A struct; a map where the names are not names or too many."""
    if fields and len(fields) <= MAX_FIELDS and all(NAME.fullmatch(name) for name, _ in fields):
        return StructType.of(fields)
    found: SqlType = NULL
    for _, kind in fields:
        found = merged(found, kind)
    return MapType(STRING, found)


def merged(one: SqlType, two: SqlType) -> SqlType:
    """The type that takes the values of both; STRING where nothing else does.

    >>> str(merged(BIGINT, DOUBLE)), str(merged(BIGINT, BOOLEAN)), str(merged(NULL, BIGINT))
    ('DOUBLE', 'STRING', 'BIGINT')
    """
    if two in (one, NULL):
        return one
    if one == NULL:
        return two
    match one, two:
        case ArrayType(left), ArrayType(right):
            return ArrayType(merged(left, right))
        case MapType(_, left), MapType(_, right):
            return MapType(STRING, merged(left, right))
        case (MapType(_, kind), StructType(fields)) | (StructType(fields), MapType(_, kind)):
            for field in fields:
                kind = merged(kind, field.type)
            return MapType(STRING, kind)
        case StructType(left_fields), StructType(right_fields):
            kinds = {field.name: field.type for field in left_fields}
            for field in right_fields:
                kinds[field.name] = merged(kinds.get(field.name, NULL), field.type)
            return _object(list(kinds.items()))
    return DOUBLE if {one, two} == {BIGINT, DOUBLE} else STRING


def known(kind: SqlType) -> SqlType:
    """The type with STRING for all that the sample leaves open.

    >>> str(known(ArrayType(NULL)))
    'ARRAY<STRING>'
    """
    return STRING if kind == NULL else with_inner_types(kind, known)
