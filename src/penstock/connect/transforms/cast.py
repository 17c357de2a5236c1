"""Cast: fields or the whole key or value in another type."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar

from penstock.base.java_text.hashing import hash_order
from penstock.base.java_text.numbers import parse_double, parse_integer, to_float32
from penstock.base.java_text.text_error import JavaTextError
from penstock.connect.config import Check, ConfigDef, Importance, Kind
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
    SettingError,
    Struct,
    Type,
    copy_basics,
    java_class,
    type_of,
    with_default,
    wrapped,
)
from penstock.connect.transforms.transformation import (
    REPLACE_NULL,
    R,
    SidedTransformation,
    require_map,
    require_struct,
    required,
    schema_cache,
    setting,
)
from penstock.serde.data.logical import DATE_NAME, TIME_NAME, TIMESTAMP_NAME, days_of, millis_of_day
from penstock.serde.data.values import java_text

__all__ = ["INPUTS", "OUTPUTS", "Cast", "cast_value", "check_input"]

PURPOSE = "cast types"
KNOWN = {kind.name: kind for kind in Type}
OUTPUTS = (
    *(Type.INT8, Type.INT16, Type.INT32, Type.INT64),
    *(Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING),
)
INPUTS = (*OUTPUTS, Type.BYTES)
BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
CLASSES: dict[Type, type[int]] = {Type.INT8: Int8, Type.INT16: Int16, Type.INT32: Int32, Type.INT64: int}


def _parse(mappings: list[str]) -> dict[str | None, Type]:
    """Return the types by field; None stands for the whole value."""
    casts: dict[str | None, Type] = {}
    whole = False
    for mapping in mappings:
        parts = mapping.split(":")
        while len(parts) > 1 and parts[-1] == "":  # as Java's split leaves them out
            parts.pop()
        if len(parts) > 2:
            raise SettingError.invalid("renames", mappings, f"Invalid rename mapping: {mapping}")
        field, word = (parts[0].strip(), parts[1]) if len(parts) == 2 else (None, parts[0])
        kind = KNOWN.get(word.strip().upper())
        if kind is None:
            reason = f"No enum constant org.apache.kafka.connect.data.Schema.Type.{word.strip().upper()}"
            name = f"Invalid type found in casting spec: {word.strip()}"
            raise SettingError(f"Invalid value java.lang.IllegalArgumentException: {reason} for configuration {name}")
        if kind not in OUTPUTS:
            supported = ", ".join(map(str, OUTPUTS))
            raise SettingError(
                f"Cast transformation does not support casting to {kind}; supported types are [{supported}]"
            )
        whole = whole or field is None
        casts[field] = kind
    if whole and len(mappings) > 1:
        raise SettingError(
            "Cast transformations that specify a type to cast the entire value to may only specify a single cast "
            "in their spec"
        )
    return casts


def _check(_name: str, value: list[str] | None) -> None:
    if not value:
        raise SettingError("Must specify at least one field to cast.")
    _parse(value)


class Cast(SidedTransformation):
    """Cast fields, or the entire key or value, to a specific type, e.g. an integer to a smaller width.

    From integers, floats, booleans and strings to any other such type, and from bytes to a string (base64).
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "spec",
                Kind.LIST,
                "List of fields and the type to cast them to of the form field1:type,field2:type to cast fields of "
                "Maps or Structs. A single type to cast the entire value. Valid types are int8, int16, int32, int64, "
                "float32, float64, boolean, and string. Note that binary fields can only be cast to string.",
                rule=Check(_check, "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"),
                importance=Importance.HIGH,
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._casts = _parse(parsed["spec"])
        self._whole = self._casts.get(None)
        self._fields = hash_order(field for field in self._casts if field is not None)
        self.replace_null = required(parsed, REPLACE_NULL.name)
        self._schemas = schema_cache(self._changed)

    def apply(self, record: R) -> R:
        """Return the record with the fields, or the whole value, cast."""
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            if self._whole is not None:
                return self.updated(record, None, cast_value(None, value, self._whole))
            fields = require_map(value, PURPOSE)
            casts = {field: cast_value(None, fields.get(field), self._casts[field]) for field in self._fields}
            return self.updated(record, None, {**fields, **casts})
        if self._whole is not None:
            changed = self._schemas(schema)
            return self.updated(record, changed, cast_value(schema, value, self._whole))
        changed = self._schemas(schema)
        before = require_struct(value, PURPOSE)
        after = Struct(changed)
        for part in before.schema.fields:
            original = before.get(part, with_default=self.replace_null)
            kind = self._casts.get(part.name)
            after[part.name] = original if kind is None else cast_value(part.schema, original, kind)
        return self.updated(record, changed, after)

    def _changed(self, schema: Schema) -> Schema:
        if self._whole is not None:
            changed = copy_basics(schema, self._whole)
        else:
            fields = [(part.name, self._changed_field(part.name, part.schema)) for part in schema.struct_fields()]
            changed = copy_basics(schema, Type.STRUCT, fields)
        return _with_nulls(changed, schema)

    def _changed_field(self, name: str, schema: Schema) -> Schema:
        kind = self._casts.get(name)
        return schema if kind is None else _with_nulls(Schema(kind), schema)


def _with_nulls(changed: Schema, source: Schema) -> Schema:
    """Return a schema that is optional as another is, and has its default, cast."""
    changed = replace(changed, optional=source.optional)
    if source.default is None:
        return changed
    return with_default(changed, cast_value(source, source.default, changed.type))


def check_input(kind: Type) -> None:
    """Check that values of a type can be cast.

    Raises:
        DataError: They cannot.
    """
    if kind not in INPUTS:
        supported = ", ".join(map(str, INPUTS))
        raise DataError(f"Cast transformation does not support casting from {kind}; supported types are [{supported}]")


def cast_value(schema: Schema | None, value: Any, target: Type) -> Any:
    """Return a value in another type; null stays null.

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
