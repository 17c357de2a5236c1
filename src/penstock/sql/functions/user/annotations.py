"""Types of SQL from the annotations of Python functions."""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from penstock.sql.functions.patterns import LambdaPattern, Signature, Variable
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    MapType,
    SqlType,
    StructType,
)

__all__ = ["UnknownType", "allows_null", "pattern_of", "without_null"]

PLAIN: dict[Any, SqlType] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    Decimal: Variable("DECIMAL"),
    date: DATE,
    time: TIME,
    datetime: TIMESTAMP,
    Any: Variable("ANY"),
    object: Variable("ANY"),
}
LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Iterator)
GENERATORS = (collections.abc.Generator,)
MAPS = (dict, collections.abc.Mapping)


class UnknownType(Exception):  # noqa: N818
    """An annotation that stands for no type of SQL."""


def allows_null(annotation: Any) -> bool:
    """Return whether None is among the values of an annotation.

    >>> allows_null(int | None), allows_null(int)
    (True, False)
    """
    if get_origin(annotation) is Annotated:
        return allows_null(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return type(None) in get_args(annotation)
    return annotation in (Any, object, None)


def without_null(annotation: Any) -> Any:
    """Return the annotation of the values that are not None."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    rest = [part for part in get_args(annotation) if part is not type(None)]
    if len(rest) != 1:
        raise UnknownType(f"{annotation} has several types")
    return rest[0]


def pattern_of(annotation: Any) -> SqlType:
    """Return the type of SQL that an annotation stands for.

    Type variables and Decimal leave parts of it to the arguments.

    Raises:
        UnknownType: There is none.

    >>> str(pattern_of(dict[str, list[int]])), str(pattern_of(Annotated[Decimal, "DECIMAL(6, 2)"]))
    ('MAP<STRING, ARRAY<BIGINT>>', 'DECIMAL(6, 2)')
    """
    if get_origin(annotation) is Annotated:
        return _annotated(annotation)
    plain = without_null(annotation)
    if isinstance(plain, TypeVar):
        return Variable(plain.__name__.strip("_").upper() or "T")
    if isinstance(plain, typing.Hashable) and plain in PLAIN:
        return PLAIN[plain]
    origin, parts = get_origin(plain), get_args(plain)
    if origin is Annotated:
        return _annotated(plain)
    if origin in LISTS + GENERATORS and parts:
        return ArrayType(pattern_of(parts[0]))
    if origin in MAPS and len(parts) == 2:
        return MapType(pattern_of(parts[0]), pattern_of(parts[1]))
    if origin is collections.abc.Callable and len(parts) == 2 and isinstance(parts[0], list):
        return LambdaPattern(tuple(map(pattern_of, parts[0])), pattern_of(parts[1]))
    if isinstance(plain, type) and (dataclasses.is_dataclass(plain) or typing.is_typeddict(plain)):
        upper = dataclasses.is_dataclass(plain)
        hints = typing.get_type_hints(plain, include_extras=True)
        return StructType.of([(name.upper() if upper else name, pattern_of(hint)) for name, hint in hints.items()])
    raise UnknownType(f"{getattr(plain, '__name__', plain)} is not an SQL type")


def _annotated(annotation: Any) -> SqlType:
    texts = [text for text in get_args(annotation)[1:] if isinstance(text, str)]
    if not texts:
        return pattern_of(get_args(annotation)[0])
    try:
        return Signature.parse(f"F() {texts[0]}").result
    except ValueError as error:
        raise UnknownType(f"{texts[0]!r}: {error}") from error
