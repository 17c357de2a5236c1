"""The schema that the elements of a list or map have in common, and their values in it."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

from penstock.base.java_text.numbers import parse_big_decimal, to_float32
from penstock.base.java_text.text_error import JavaTextError
from penstock.connect.data import (
    DataError,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Moment,
    Schema,
    SchemaAndValue,
    Type,
    java_class,
    wrapped,
)
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    date_from_days,
    time_from_millis,
)
from penstock.serde.data.values import java_text

__all__ = ["Merger", "converted", "number_of"]

ORDER = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
CLASSES: dict[Type, type[int]] = {Type.INT8: Int8, Type.INT16: Int16, Type.INT32: Int32, Type.INT64: int}


class Merger:
    """The common schema of values that come one after another."""

    def __init__(self) -> None:
        self.common: Schema | None = None
        self._compatible = True

    def merge(self, element: SchemaAndValue | None) -> None:
        """Take one more value into account; null has no schema."""
        if element is None or element.schema is None or not self._compatible:
            return
        if self.common is None:
            self.common = element.schema
        else:
            self.common = _merged(self.common, element.schema)
            self._compatible = self.common is not None


def _merged(one: Schema, two: Schema) -> Schema | None:
    if one.type is two.type:
        if one.optional == two.optional:
            return one if one.optional else two
        return None
    if one.type not in ORDER or two.type not in ORDER:
        return None
    return one if ORDER.index(one.type) > ORDER.index(two.type) else two


def converted(schema: Schema | None, value: Any) -> Any:
    """Return a value as one of a schema. Kafka's ``Values.convertTo``.

    Raises:
        DataError: It cannot be.
    """
    if schema is None:
        return value
    if value is None:
        if schema.optional:
            return None
        raise DataError("Unable to convert a null value to a schema that requires a value")
    if schema.name in (DATE_NAME, TIME_NAME, TIMESTAMP_NAME):
        if isinstance(value, Moment):
            return value
        number = wrapped(number_of(value), 64)
        if schema.name == TIMESTAMP_NAME:
            return Moment(number)
        return (
            date_from_days(wrapped(number, 32)) if schema.name == DATE_NAME else time_from_millis(wrapped(number, 32))
        )
    if schema.name == DECIMAL_NAME:
        return value if isinstance(value, Decimal) else Decimal(repr(float(number_of(value))))
    if schema.type in BITS:
        bits = BITS[schema.type]
        return CLASSES[schema.type](wrapped(number_of(value), bits))
    if schema.type is Type.FLOAT32:
        return Float32(to_float32(float(number_of(value))))
    if schema.type is Type.FLOAT64:
        return Float64(number_of(value))
    if schema.type is Type.STRING and not isinstance(value, str):
        return base64.b64encode(value).decode() if isinstance(value, bytes) else java_text(value)
    return value


def number_of(value: Any) -> int | float | Decimal:
    """Return the number that a value is or that its text has.

    Raises:
        DataError: It has none.
    """
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return value
    cause: JavaTextError | None = None
    if isinstance(value, str):
        try:
            return parse_big_decimal(value)
        except JavaTextError as error:
            cause = error
    raise DataError(f"Unable to convert {java_text(value)} (class {java_class(value)}) to a number") from cause
