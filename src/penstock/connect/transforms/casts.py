"""The conversions of Cast: from the types of Connect to numbers, booleans and texts."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

from penstock.base.java_text.numbers import parse_double, parse_integer, to_float32
from penstock.base.java_text.text_error import JavaTextError
from penstock.connect.converters.header_text import moment_text
from penstock.connect.data import (
    DataError,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Moment,
    Schema,
    Type,
    java_class,
    type_of,
    wrapped,
)
from penstock.serde.data.logical import DATE_NAME, TIME_NAME, TIMESTAMP_NAME, days_of, millis_of_day
from penstock.serde.data.texts import java_text

__all__ = ["INPUTS", "OUTPUTS", "cast_value", "check_input"]

OUTPUTS = (
    *(Type.INT8, Type.INT16, Type.INT32, Type.INT64),
    *(Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING),
)
INPUTS = (*OUTPUTS, Type.BYTES)
BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
CLASSES: dict[Type, type[int]] = {Type.INT8: Int8, Type.INT16: Int16, Type.INT32: Int32, Type.INT64: int}


def check_input(kind: Type) -> None:
    """Check that values of a type can be cast.

    Raises:
        DataError: They cannot.
    """
    if kind not in INPUTS:
        known = ", ".join(map(str, INPUTS))
        raise DataError(f"Cast transformation does not support casting from {kind}; supported types are [{known}]")


def cast_value(schema: Schema | None, value: Any, target: Type) -> Any:
    """A value in another type; null stays null.

    Args:
        schema: Its schema; None if it has none.
        value: The value.
        target: The type.

    Raises:
        DataError: It cannot be cast, or is a text that is not of the type.

    Example:
        >>> cast_value(None, "12", Type.INT8), cast_value(None, 300, Type.INT8), cast_value(None, 1.5, Type.STRING)
        (12, 44, '1.5')
    """
    if value is None:
        return None
    kind = type_of(value) if schema is None else schema.type
    if kind is None:
        raise DataError(
            f"Cast transformation was passed a value of type class {java_class(value)} "
            "which is not supported by Connect's data API"
        )
    check_input(kind)
    original = value
    if schema is not None and schema.name is not None and target is not Type.STRING:
        value = _encoded(schema, value)
    try:
        return _as(value, schema, target)
    except JavaTextError as error:
        raise DataError(f"Value ({java_text(original)}) was out of range for requested data type") from error


def _encoded(schema: Schema, value: Any) -> Any:
    if isinstance(value, Moment):
        match schema.name:
            case n if n == DATE_NAME:
                return days_of(value)
            case n if n == TIME_NAME:
                return millis_of_day(value)
            case n if n == TIMESTAMP_NAME:
                return value.ms
    return value


def _as(value: Any, schema: Schema | None, target: Type) -> Any:
    if target is Type.STRING:
        if isinstance(value, Moment):
            return moment_text(value)
        return base64.b64encode(value).decode() if isinstance(value, bytes) else java_text(value, schema)
    if not isinstance(value, int | float | Decimal | str):
        raise DataError(f"Unexpected type in Cast transformation: class {java_class(value, schema)}")
    if target is Type.BOOLEAN:
        if isinstance(value, bool):
            return value
        return value.lower() == "true" if isinstance(value, str) else wrapped(value, 64) != 0
    if target in BITS:
        bits = BITS[target]
        return CLASSES[target](parse_integer(value, bits) if isinstance(value, str) else wrapped(value, bits))
    number = parse_double(value) if isinstance(value, str) else float(value)
    return Float32(to_float32(number)) if target is Type.FLOAT32 else Float64(number)
