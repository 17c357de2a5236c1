"""Checking values against their schemas, with Kafka's messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.serde.data.errors import DataError, SchemaBuilderError
from penstock.serde.data.schema import Schema, Type
from penstock.serde.data.values import fits, java_class

__all__ = ["validate_value", "with_default", "with_struct_default"]


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
        penstock.serde.data.errors.DataError: Invalid value: null used for required field: "size", schema type: INT8
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
