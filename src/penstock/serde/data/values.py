"""Values of schemas: their Java types, structs, checks with Kafka's messages, and Java's texts of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

from penstock.base.java_text.numbers import double_text, float_text
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    BigInteger,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Moment,
)
from penstock.serde.data.schema import DataError, Field, Schema, SchemaBuilderError, Type

__all__ = [
    "Struct",
    "fits",
    "java_class",
    "java_text",
    "number_text",
    "type_of",
    "validate_value",
    "with_default",
    "with_struct_default",
    "wrapped",
]

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
    """Return Java's class of a value, as messages name it.

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


def validate_value(schema: Schema, value: Any, field: str | None = None) -> None:
    """Check a value against its schema, all of it. Kafka's ``ConnectSchema.validateValue``.

    Args:
        schema: The schema.
        value: The value.
        field: The field that it is of, for the message.

    Raises:
        DataError: It does not fit.

    Example:
        >>> validate_value(Schema(Type.INT8), None, "size")
        Traceback (most recent call last):
        ...
        penstock.serde.data.schema.DataError: Invalid value: null used for required field: "size", schema type: INT8
    """
    _validate(schema, value, "value" if field is None else f'field: "{field}"')


def with_default(schema: Schema, value: Any) -> Schema:
    """Return the same schema with a default.

    Raises:
        SchemaBuilderError: The default does not fit the schema, or is a struct, which Kafka takes for no schema.
    """
    if schema.type is Type.STRUCT and value is not None:
        raise SchemaBuilderError("Invalid default value") from DataError("Struct schemas do not match.")
    try:
        validate_value(schema, value)
    except DataError as error:
        raise SchemaBuilderError("Invalid default value") from error
    return replace(schema, default=value)


def with_struct_default(schema: Schema, value: Any) -> Schema:
    """Return the schema of a struct with a default that was made for it.

    Raises:
        SchemaBuilderError: The default lacks a field, or is of another schema.
    """
    try:
        validate_value(schema, value)
    except DataError as error:
        raise SchemaBuilderError("Invalid default value") from error
    return replace(schema, default=value)


def _validate(schema: Schema, value: Any, part: str) -> None:
    if value is None:
        if not schema.optional:
            raise DataError(f"Invalid value: null used for required {part}, schema type: {schema.type}")
        return
    if not fits(schema, value):
        name = f' "{schema.name}"' if schema.name is not None else ""
        raise DataError(
            f"Invalid Java object for schema{name} with type {schema.type}: class {java_class(value)} for {part}"
        )
    match schema.type:
        case Type.STRUCT:
            if value.schema != schema:
                raise DataError("Struct schemas do not match.")
            value.validate()
        case Type.ARRAY:
            inside = f"element of array {part}"
            items = _known(schema.values, inside)
            for element in value:
                _validate(items, element, inside)
        case Type.MAP:
            key_part, value_part = f"key of map {part}", f"value of map {part}"
            keys, values = _known(schema.keys, key_part), _known(schema.values, value_part)
            for key, element in value.items():
                _validate(keys, key, key_part)
                _validate(values, element, value_part)


def _known(schema: Schema | None, part: str) -> Schema:
    if schema is None:
        raise DataError(f"No schema defined for {part}")
    return schema


class Struct:
    """A value with the fields of its schema. Kafka's ``Struct``.

    Args:
        schema: A struct's schema.
        values: Fields to set, by name.

    Raises:
        DataError: The schema is not a struct's, or a value does not fit its field.

    Example:
        >>> from penstock.serde.data import STRING, struct, with_default
        >>> line = Struct(struct({"path": with_default(STRING, "/")}))
        >>> line["path"], line.raw("path")
        ('/', None)
    """

    __slots__ = ("_values", "schema")
    connect_type: ClassVar[Type] = Type.STRUCT

    def __init__(self, schema: Schema, values: dict[str, Any] | None = None) -> None:
        if schema.type is not Type.STRUCT:
            raise DataError(f"Not a struct schema: {schema}")
        self.schema = schema
        self._values: list[Any] = [None] * len(schema.fields)
        for name, value in (values or {}).items():
            self[name] = value

    @classmethod
    def of_checked(cls, schema: Schema, values: list[Any]) -> Struct:
        """Return a struct of values in the order of the schema's fields, each of which is known to fit its field.

        >>> from penstock.serde.data import STRING, struct
        >>> Struct.of_checked(struct({"path": STRING}), ["/"])["path"]
        '/'
        """
        struct = cls.__new__(cls)
        struct.schema, struct._values = schema, values  # noqa: SLF001 - its own
        return struct

    def all_raw(self) -> list[Any]:
        """Return the values of all fields as they were set, in the order of the schema."""
        return self._values

    def __getitem__(self, name: str) -> Any:
        part = self._field(name)
        value = self._values[part.index]
        return part.schema.default if value is None else value

    def __setitem__(self, name: str, value: Any) -> None:
        part = self._field(name)
        validate_value(part.schema, value, part.name)
        self._values[part.index] = value

    def raw(self, name: str) -> Any:
        """Return the value of a field as it was set, None in place of a default. Kafka's ``getWithoutDefault``."""
        return self._values[self._field(name).index]

    def get(self, part: Field, *, with_default: bool = True) -> Any:
        """Return the value of a field, with the default in place of null or without."""
        value = self._values[part.index]
        return part.schema.default if value is None and with_default else value

    def validate(self) -> None:
        """Check that all required fields are set.

        Raises:
            DataError: One is not.
        """
        for part, value in zip(self.schema.fields, self._values, strict=True):
            if value is None and (part.schema.optional or part.schema.default is not None):
                continue
            validate_value(part.schema, value, part.name)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name, defaults in place of nulls; nested structs stay structs."""
        return {part.name: self.get(part) for part in self.schema.fields}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.schema == other.schema and self._values == other._values

    def __hash__(self) -> int:
        return hash((self.schema, tuple(v if _is_hashable(v) else 0 for v in self._values)))

    def __repr__(self) -> str:
        pairs = zip(self.schema.fields, self._values, strict=True)
        return f"Struct{{{','.join(f'{part.name}={value}' for part, value in pairs if value is not None)}}}"

    def _field(self, name: str) -> Field:
        part = self.schema.field(name)
        if part is None:
            raise DataError(f"{name} is not a valid field name")
        return part


def _is_hashable(value: object) -> bool:
    return not isinstance(value, list | dict)


def java_text(value: Any, schema: Schema | None = None) -> str:
    """Return the text of a value as Java's ``toString`` has it.

    Args:
        value: The value.
        schema: Its schema, which tells a float of 32 bits from one of 64.

    Example:
        >>> java_text({"a": [1, None, 2.0, True]})
        '{a=[1, null, 2.0, true]}'
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return number_text(value, schema)
    if isinstance(value, bytes):
        return f"[B@{hash(value) & 0xFFFFFFFF:x}"  # Java shows the object's hash, not what it holds
    if isinstance(value, list | tuple):
        items = schema.values if schema is not None else None
        return f"[{', '.join(java_text(part, items) for part in value)}]"
    if isinstance(value, Mapping):
        keys, values = (schema.keys, schema.values) if schema is not None else (None, None)
        return f"{{{', '.join(f'{java_text(k, keys)}={java_text(v, values)}' for k, v in value.items())}}}"
    if isinstance(value, Struct):
        set_ = ((part, value.get(part, with_default=False)) for part in value.schema.fields)
        shown = (f"{part.name}={java_text(one, part.schema)}" for part, one in set_ if one is not None)
        return f"Struct{{{','.join(shown)}}}"
    return str(value)


def number_text(value: float | Decimal, schema: Schema | None = None) -> str:
    """Return the text of a number.

    >>> number_text(1e20), number_text(Float32(0.1)), number_text(Decimal("1E+3")), number_text(7)
    ('1.0E20', '0.1', '1E+3', '7')
    """
    if isinstance(value, float):
        plain = type(value) is float and schema is not None and schema.type is Type.FLOAT32
        single = plain or isinstance(value, Float32)
        return float_text(value) if single else double_text(value)
    return int.__repr__(value) if isinstance(value, int) else str(value)
