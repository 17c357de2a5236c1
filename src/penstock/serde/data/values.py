"""The Java types of Python's values, with a schema and without, and their names in messages."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock.serde.data.logical import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME
from penstock.serde.data.numbers import BigInteger, Float32, Float64, Int8, Int16, Int32, Int64, Moment
from penstock.serde.data.schema import Schema, Type

__all__ = ["fits", "java_class", "type_of", "wrapped"]

BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
INTEGERS = {Int8: Type.INT8, Int16: Type.INT16, Int32: Type.INT32, Int64: Type.INT64}
LOGICAL: dict[str, type] = {DECIMAL_NAME: Decimal, DATE_NAME: Moment, TIME_NAME: Moment, TIMESTAMP_NAME: Moment}
TYPES: dict[type, Type] = {
    int: Type.INT64,
    float: Type.FLOAT64,
    Float64: Type.FLOAT64,
    Float32: Type.FLOAT32,
    bool: Type.BOOLEAN,
    str: Type.STRING,
    bytes: Type.BYTES,
    list: Type.ARRAY,
    tuple: Type.ARRAY,
    dict: Type.MAP,
    **INTEGERS,
}
NAMES = {
    Type.INT8: "java.lang.Byte",
    Type.INT16: "java.lang.Short",
    Type.INT32: "java.lang.Integer",
    Type.INT64: "java.lang.Long",
    Type.FLOAT32: "java.lang.Float",
    Type.FLOAT64: "java.lang.Double",
    Type.BOOLEAN: "java.lang.Boolean",
    Type.STRING: "java.lang.String",
    Type.BYTES: "[B",
    Type.ARRAY: "java.util.ArrayList",
    Type.MAP: "java.util.LinkedHashMap",
    Type.STRUCT: "org.apache.kafka.connect.data.Struct",
}
OTHER_NAMES = {
    Decimal: "java.math.BigDecimal",
    Moment: "java.util.Date",
    UUID: "java.util.UUID",
    BigInteger: "java.math.BigInteger",
}


def type_of(value: Any, schema: Schema | None = None) -> Type | None:
    """Return the type of a value; None if Connect has no type for it, as for a Decimal or a Moment.

    Args:
        value: The value, not None.
        schema: Its schema, which says the type of a plain ``int`` or ``float``.

    Example:
        >>> type_of(1), type_of(1, Schema(Type.INT8)), type_of(Int16(1)), type_of(Decimal(1))
        (<Type.INT64: 'int64'>, <Type.INT8: 'int8'>, <Type.INT16: 'int16'>, None)
    """
    kind = type(value)
    if kind is int:
        if schema is not None and schema.type in BITS:
            return schema.type
        return Type.INT64 if -(1 << 63) <= value < 1 << 63 else None
    if kind is float and schema is not None and schema.type is Type.FLOAT32:
        return Type.FLOAT32
    return TYPES.get(kind) or getattr(kind, "connect_type", None)


def java_class(value: Any, schema: Schema | None = None) -> str:
    """Java's class of a value, as messages name it.

    >>> java_class("x"), java_class(1), java_class(None)
    ('java.lang.String', 'java.lang.Long', 'null')
    """
    if value is None:
        return "null"
    kind = type_of(value, schema)
    if kind is not None:
        return NAMES[kind]
    return OTHER_NAMES.get(type(value), "java.math.BigInteger" if isinstance(value, int) else type(value).__name__)


def fits(schema: Schema, value: Any) -> bool:
    """Return whether a value is of the class that its schema asks for; elements and fields are not looked at."""
    logical = LOGICAL.get(schema.name) if schema.name is not None else None
    if logical is not None:
        return isinstance(value, logical)
    schema_type = schema.type
    kind = type(value)
    if kind is int and schema_type in BITS:
        limit = 1 << (BITS[schema_type] - 1)
        return bool(-limit <= value < limit)
    if kind is float:
        return schema_type in (Type.FLOAT32, Type.FLOAT64)
    return type_of(value) is schema_type


def wrapped(value: float | Decimal, bits: int) -> int:
    """Return the whole part of a number in so many bits, as Java's casts have it.

    Integers and decimals wrap, floats saturate.

    >>> wrapped(300, 8), wrapped(3.99e300, 64) == 2**63 - 1, wrapped(float("nan"), 32)
    (44, True, 0)
    """
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        widest = 64 if bits == 64 else 32  # a float becomes a byte or short by way of an int
        limit = 1 << (widest - 1)
        value = (
            max(-limit, min(limit - 1, int(value))) if math.isfinite(value) else (limit - 1 if value > 0 else -limit)
        )
    whole = int(value)
    half = 1 << (bits - 1)
    return (whole + half) % (1 << bits) - half
