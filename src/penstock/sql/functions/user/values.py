"""Values on their way into a Python function and out of it: dataclasses and datetimes are made and taken apart."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, get_args, get_origin

from penstock.base.terminal.human_numbers import with_article
from penstock.sql.functions.user.annotations import LISTS, MAPS, without_null
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    DecimalType,
    SqlType,
    SqlValueError,
)
from penstock.sql.types.casts import cast_function
from penstock.sql.types.nested_values import nested_conversion
from penstock.sql.types.numbers import INT_MAX, INT_MIN

__all__ = ["incoming", "outgoing", "shown"]

Convert = Callable[[Any], Any]
WIDEST = DecimalType(1000, 500)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHOWN = 200  # characters of the arguments in a message
PLAIN: dict[SqlType, type] = {BOOLEAN: bool, STRING: str, TIME: time}


def shown(values: Iterable[Any]) -> str:
    """Arguments as a message shows them, cut where they are long."""
    text = ", ".join(map(repr, values))
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def incoming(annotation: Any) -> Convert | None:
    """Return the function that makes a value of SQL what an annotation says; None where it is that already."""
    inner = _incoming(without_null(annotation))
    return None if inner is None else lambda value: None if value is None else inner(value)


def _incoming(annotation: Any) -> Convert | None:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _incoming(parts[0])
    if annotation is datetime:
        return lambda millis: datetime.fromtimestamp(millis / 1000, UTC)
    if origin in LISTS and parts and (item := incoming(parts[0])) is not None:
        return lambda values: [item(value) for value in values]
    if origin in MAPS and len(parts) == 2 and (entry := incoming(parts[1])) is not None:
        return lambda values: {key: entry(value) for key, value in values.items()}
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        steps = [(name, incoming(hint)) for name, hint in hints.items()]

        def instance(row: Mapping[str, Any]) -> Any:
            values = {name: row.get(name.upper()) for name, _ in steps}
            return annotation(**{name: step(values[name]) if step else values[name] for name, step in steps})

        return instance
    return None


def outgoing(kind: SqlType) -> Convert:
    """Return the function that checks a result and makes it a value of a type of SQL.

    >>> outgoing(DecimalType(4, 2))(Decimal("1.005")), outgoing(DOUBLE)(2)
    (Decimal('1.01'), 2.0)
    """
    inner = _outgoing(kind)
    return lambda value: None if value is None else inner(value)


def _outgoing(kind: SqlType) -> Convert:
    nested = nested_conversion(
        kind,
        outgoing,
        elements=lambda values: _of(values, (list, tuple), kind),
        entries=lambda values: _of(values, dict, kind).items(),
        members=lambda value, names: _members(value, names, kind),
    )
    if nested is not None:
        return nested
    if isinstance(kind, DecimalType):
        return _decimal(kind)
    if kind in PLAIN:
        return lambda value: _of(value, PLAIN[kind], kind)
    rules: dict[SqlType, Convert] = {
        INTEGER: lambda value: _whole(value, kind, INT_MIN, INT_MAX),
        BIGINT: lambda value: _whole(value, kind, -(2**63), 2**63 - 1),
        DOUBLE: lambda value: float(_of(value, (int, float), kind, wrong=bool)),
        BYTES: lambda value: bytes(_of(value, (bytes, bytearray), kind)),
        DATE: lambda value: _of(value, date, kind, wrong=datetime),
        TIMESTAMP: _timestamp,
    }
    return rules.get(kind, lambda value: value)


def _of(value: Any, types: Any, kind: SqlType, wrong: Any = ()) -> Any:
    if not isinstance(value, types) or isinstance(value, wrong):
        raise SqlValueError(f"the result {shown([value])} is not {with_article(str(kind))}")
    return value


def _whole(value: Any, kind: SqlType, least: int, most: int) -> int:
    number: int = _of(value, int, kind, wrong=bool)
    if not least <= number <= most:
        raise SqlValueError(f"the result {number} is outside of {kind}")
    return number


def _decimal(kind: DecimalType) -> Convert:
    fit = cast_function(WIDEST, kind)
    return lambda value: fit(Decimal(_of(value, (int, Decimal), kind, wrong=bool)))


def _timestamp(value: Any) -> int:
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return int((moment - EPOCH).total_seconds() * 1000)
    return _whole(value, TIMESTAMP, -(2**63), 2**63 - 1)


def _members(value: Any, names: tuple[str, ...], kind: SqlType) -> list[Any]:
    """Return the values of the fields of a dataclass or a mapping, whatever the case of their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    row = _of(value, Mapping, kind)
    upper = {str(name).upper(): item for name, item in row.items()}
    return [row[name] if name in row else upper.get(name.upper()) for name in names]
