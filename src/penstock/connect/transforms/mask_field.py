"""MaskField: fields that become empty, or a fixed text or number."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

from penstock.base.java_text.hashing import hash_order
from penstock.base.java_text.numbers import parse_big_decimal, to_float32, whole_number
from penstock.base.java_text.text_error import JavaTextError
from penstock.connect.config import ConfigDef, Importance, Kind, NonEmptyText, UniqueList
from penstock.connect.converters.header_merging import number_of
from penstock.connect.data import (
    BigInteger,
    DataError,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Moment,
    Schema,
    Struct,
    Type,
    java_class,
    type_of,
    wrapped,
)
from penstock.connect.transforms.transformation import (
    REPLACE_NULL,
    R,
    SidedTransformation,
    require_map,
    require_struct,
    required,
    setting,
)

__all__ = ["MaskField"]

PURPOSE = "mask fields"
CLASSES: dict[Type, type[int]] = {Type.INT8: Int8, Type.INT16: Int16, Type.INT32: Int32, Type.INT64: int}
BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


class MaskField(SidedTransformation):
    """Mask specified fields with a valid null value for the field type (i.e. 0, false, empty string, and so on).

    For numeric and string fields, an optional replacement value can be specified that is converted to the correct
    type.
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting("fields", Kind.LIST, "Names of fields to mask.", rule=UniqueList(), importance=Importance.HIGH),
            setting(
                "replacement",
                Kind.STRING,
                "Custom value replacement, that will be applied to all 'fields' values (numeric or non-empty string "
                "values only).",
                default=None,
                rule=NonEmptyText(),
                importance=Importance.LOW,
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._fields = hash_order(parsed["fields"])
        self._replacement: str | None = parsed["replacement"]
        self.replace_null = required(parsed, REPLACE_NULL.name)

    def apply(self, record: R) -> R:
        """Return the record with these fields masked."""
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            fields = require_map(value, PURPOSE)
            masked = {name: self._masked(fields.get(name), None) for name in self._fields}
            return self.updated(record, None, fields | masked)
        before = require_struct(value, PURPOSE)
        after = Struct(before.schema)
        for part in before.schema.fields:
            original = before.get(part, with_default=self.replace_null)
            after[part.name] = self._masked(original, part.schema) if part.name in self._fields else original
        return self.updated(record, schema, after)

    def _masked(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        return _empty(value, schema) if self._replacement is None else _replaced(value, schema, self._replacement)


def _empty(value: Any, schema: Schema | None) -> Any:
    kind = type_of(value, schema)
    if kind in BITS and isinstance(value, int):
        return CLASSES[kind](0)
    match value:
        case bool():
            return False
        case int():
            return BigInteger(0)
        case float():
            return Float32(0.0) if kind is Type.FLOAT32 else Float64(0.0)
        case str():
            return ""
        case Decimal():
            return Decimal(0)
        case Moment():
            return Moment(0)
        case list() | tuple():
            return []
        case dict():
            return {}
    raise DataError(f"Cannot mask value of type: class {java_class(value, schema)}")


def _replaced(value: Any, schema: Schema | None, text: str) -> Any:
    kind = type_of(value, schema)
    if isinstance(value, bool | bytes | list | tuple | dict | Moment | Struct | UUID):
        raise DataError(f"Cannot mask value of type class {java_class(value, schema)} with custom replacement.")
    if isinstance(value, str):
        return text
    if kind in BITS:
        return CLASSES[kind](wrapped(number_of(text), BITS[kind]))
    if isinstance(value, float):
        number = float(number_of(text))
        return Float32(to_float32(number)) if kind is Type.FLOAT32 else Float64(number)
    if isinstance(value, Decimal):
        try:
            return parse_big_decimal(text)
        except JavaTextError as error:
            raise DataError(f"Unable to convert {text} (class java.lang.String) to number") from error
    whole = whole_number(text)
    if whole is None:
        raise DataError(f"Unable to convert {text} (class java.lang.String) to number")
    return BigInteger(whole)
