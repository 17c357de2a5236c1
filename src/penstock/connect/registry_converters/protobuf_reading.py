"""Connect's schemas of Protobuf's messages, and the values of messages."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from penstock.connect.data import DATE, TIME, TIMESTAMP, DataError, Moment, Schema, Struct, Type, decimal_schema, map_of
from penstock.connect.data import array as array_of
from penstock.connect.data import struct as struct_of
from penstock.connect.registry_converters.protobuf_schemas import ENUM, NUMBERS, PRECISION, TAG, TYPE, UNION, WRAPPERS
from penstock.serde.data.logical import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME, decimal_from_bytes

__all__ = ["ProtobufReading", "message_schema", "message_value"]

WORDS = {number: word for word, number in NUMBERS.items()}
WRAPPED = {f"google.protobuf.{name}": word for word, name in WRAPPERS.items() if not word.startswith("fixed")}
CONNECT = {"float": Type.FLOAT32, "double": Type.FLOAT64, "bool": Type.BOOLEAN, "string": Type.STRING}
CONNECT |= {"bytes": Type.BYTES, **dict.fromkeys(("int32", "sint32", "sfixed32"), Type.INT32)}
SMALL = {"int8": Type.INT8, "int16": Type.INT16}
DAY_LOGICAL = {"google.type.Date": DATE, "google.type.TimeOfDay": TIME, "google.protobuf.Timestamp": TIMESTAMP}
ENUM_TYPE, MESSAGE_TYPE = 14, 11
DEPTH = 50
Parameters = Mapping[tuple[str, str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class ProtobufReading:
    """What the converter's settings say of the schemas that it reads.

    Attributes:
        full_names: Names have their packages (``enhanced.protobuf.schema.support``).
        int_enums: Enums are their numbers (``int.for.enums``).
        optional: Only fields with the word ``optional`` are nullable (``optional.for.nullables``).
        wraps: Only messages such as ``StringValue`` are nullable, as plain values (``wrapper.for.nullables``).
        unwraps: A message that is nothing but such a value is the value (``wrapper.for.raw.primitives``).
        numbers_unions: The names of unions end with their place (``generate.index.for.unions``).
    """

    full_names: bool = False
    int_enums: bool = False
    optional: bool = False
    wraps: bool = False
    unwraps: bool = True
    numbers_unions: bool = True


def message_schema(descriptor: Any, parameters: Parameters, reading: ProtobufReading) -> Schema:
    """The schema of a message.

    Raises:
        DataError: The message holds itself.
    """
    if reading.unwraps and descriptor.full_name in WRAPPED:
        return Schema(_kind(WRAPPED[descriptor.full_name]))
    known = DAY_LOGICAL.get(descriptor.full_name)
    return known or _Reader(parameters, reading).message(descriptor, ())


class _Reader:
    def __init__(self, parameters: Parameters, reading: ProtobufReading) -> None:
        self._parameters = parameters
        self._reading = reading

    def _name(self, descriptor: Any) -> str:
        return str(descriptor.full_name if self._reading.full_names else descriptor.name)

    def message(self, descriptor: Any, above: tuple[str, ...]) -> Schema:
        if descriptor.full_name in above or len(above) > DEPTH:
            raise DataError(
                f"the Protobuf message {descriptor.full_name} holds itself, which Connect's schemas cannot",
                hint="Leave the field out of the message, or read the topic with another converter.",
            )
        inside = (*above, descriptor.full_name)
        parts = [
            (union_name(one, self._reading), self._union(one, inside)) for one in descriptor.oneofs if _is_real(one)
        ]
        parts += [(one.name, self._field(one, inside)) for one in descriptor.fields if not _in_union(one)]
        return struct_of(parts, name=self._name(descriptor))

    def _union(self, oneof: Any, above: tuple[str, ...]) -> Schema:
        fields = [(one.name, self._field(one, above)) for one in oneof.fields]
        return struct_of(fields, name=f"{UNION}.{self._name(oneof)}", optional=True)

    def _field(self, field: Any, above: tuple[str, ...]) -> Schema:
        made = self._type(field, above)
        nullable = made.optional
        if field.is_repeated and made.type is not Type.MAP:
            made, nullable = array_of(made.as_optional()), True
        elif made.type is Type.MAP:
            nullable = True
        if self._reading.optional:
            nullable = nullable or _says_optional(field)
        elif not self._reading.wraps:
            nullable = True
        parameters = {**(made.parameters or {}), TAG: str(field.number)}
        return replace(made, optional=nullable, parameters=parameters)

    def _type(self, field: Any, above: tuple[str, ...]) -> Schema:
        message = field.message_type
        path = str(field.containing_type.full_name).removeprefix(f"{field.file.package}." if field.file.package else "")
        given = self._parameters.get((path, field.name), {})
        if field.type == ENUM_TYPE:
            return self._enum(field.enum_type)
        if message is None:
            word = WORDS[field.type]
            kind = SMALL.get(given.get("connect.type", ""), _kind(word)) if word == "int32" else _kind(word)
            plain = "int32" if kind is not Type.INT64 else "int64"
            is_other = kind in (Type.INT32, Type.INT64) and word != plain
            return Schema(kind, parameters={TYPE: word} if is_other else None)
        if message.full_name == "confluent.type.Decimal":
            made = decimal_schema(_int(given.get("scale")) or 0)
            precision = _int(given.get("precision"))
            if precision is not None:
                made = replace(made, parameters={**(made.parameters or {}), PRECISION: str(precision)})
            return made.as_optional()
        if message.full_name in DAY_LOGICAL:
            return DAY_LOGICAL[message.full_name].as_optional()
        if self._reading.wraps and message.full_name in WRAPPED:
            return Schema(_kind(WRAPPED[message.full_name]), optional=True)
        if _is_map(field):
            keys, values = (self._field(one, above) for one in message.fields)
            return replace(map_of(keys, values, optional=True), name=_map_name(self._name(message)))
        return self.message(message, above).as_optional()

    def _enum(self, descriptor: Any) -> Schema:
        values = {f"{ENUM}.{value.name}": str(value.number) for value in descriptor.values}
        kind = Type.INT32 if self._reading.int_enums else Type.STRING
        return Schema(kind, True, name=self._name(descriptor), parameters={ENUM: descriptor.name, **values})  # noqa: FBT003


def message_value(schema: Schema, value: Any, reading: ProtobufReading) -> Any:
    """The value of a message, or of one of its fields."""
    match schema.name:
        case name if name == DECIMAL_NAME:
            return _decimal(value)
        case name if name == DATE_NAME:
            return _date(value)
        case name if name == TIME_NAME:
            return Moment(((value.hours * 60 + value.minutes) * 60 + value.seconds) * 1000 + value.nanos // 1_000_000)
        case name if name == TIMESTAMP_NAME:
            return Moment(value.seconds * 1000 + value.nanos // 1_000_000)
    if schema.type is Type.STRUCT:
        return _struct(schema, value, reading)
    if schema.type is Type.ARRAY and schema.values is not None:
        return [message_value(schema.values, each, reading) for each in value]
    if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        keys, values = schema.keys, schema.values
        pairs = list(value.items()) if hasattr(value, "items") else [(each.key, each.value) for each in value]
        return {message_value(keys, key, reading): message_value(values, each, reading) for key, each in pairs}
    plain = value.value if hasattr(value, "DESCRIPTOR") else value
    if schema.type is Type.INT64 and plain > 0x7FFFFFFFFFFFFFFF:
        return plain - (1 << 64)  # Java's long of an unsigned number
    return plain


def _struct(schema: Schema, value: Any, reading: ProtobufReading) -> Struct:
    made = Struct(schema)
    descriptor = value.DESCRIPTOR
    for oneof in descriptor.oneofs:
        chosen = value.WhichOneof(oneof.name) if _is_real(oneof) else None
        if chosen is not None:
            name = union_name(oneof, reading)
            inner = schema.field(name)
            assert inner is not None  # noqa: S101 - the schema was made of the descriptor
            part = inner.schema.field(chosen)
            assert part is not None  # noqa: S101
            one = descriptor.fields_by_name[chosen]
            made[name] = Struct(inner.schema, {chosen: _field_value(part.schema, one, value, reading)})
    for one in descriptor.fields:
        if _in_union(one):
            continue
        part = schema.field(one.name)
        has_no_presence = one.is_repeated or (one.message_type is None and not _says_optional(one))
        if part is not None and (has_no_presence or value.HasField(one.name)):
            made[one.name] = _field_value(part.schema, one, value, reading)
    return made


def _field_value(schema: Schema, field: Any, value: Any, reading: ProtobufReading) -> Any:
    found = getattr(value, field.name)
    if field.type == ENUM_TYPE and schema.type in (Type.STRING, Type.ARRAY):
        by_number = field.enum_type.values_by_number

        def symbol(number: int) -> str:
            known = by_number.get(number)
            return known.name if known else f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{number}"

        inner = schema.values if schema.type is Type.ARRAY else schema
        if inner is not None and inner.type is Type.STRING:
            return [symbol(each) for each in found] if field.is_repeated else symbol(found)
    return message_value(schema, found, reading)


def union_name(oneof: Any, reading: ProtobufReading) -> str:
    """The name of the field that holds a union."""
    return f"{oneof.name}_{oneof.index}" if reading.numbers_unions else str(oneof.name)


def _is_real(oneof: Any) -> bool:
    return not (len(oneof.fields) == 1 and _is_synthetic(oneof.fields[0]))


def _is_synthetic(field: Any) -> bool:
    oneof = field.containing_oneof
    return oneof is not None and len(oneof.fields) == 1 and oneof.name == f"_{field.name}"


def _in_union(field: Any) -> bool:
    return field.containing_oneof is not None and _is_real(field.containing_oneof)


def _says_optional(field: Any) -> bool:
    """Whether a field has presence by its own word: ``optional`` of proto3, or of proto2."""
    if field.is_repeated or field.message_type is not None:
        return _is_synthetic(field)
    return bool(field.has_presence) and not field.is_required and not _in_union(field)


def _is_map(field: Any) -> bool:
    message = field.message_type
    names = [one.name for one in message.fields]
    return bool(
        field.is_repeated
        and message.name.endswith("Entry")
        and names == ["key", "value"]
        and not any(one.is_repeated for one in message.fields)
    )


def _map_name(name: str) -> str:
    around, dot, last = name.rpartition(".")
    words = last.removesuffix("Entry")
    return f"{around}{dot}{re.sub('(?<!^)(?=[A-Z])', '_', words).lower()}"


def _kind(word: str) -> Type:
    return CONNECT.get(word, Type.INT64)


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _decimal(value: Any) -> Decimal:
    return decimal_from_bytes(decimal_schema(value.scale), value.value or b"\0")


def _date(value: Any) -> Moment:
    try:
        return Moment.of(dt.date(value.year, value.month, value.day))
    except ValueError as error:
        raise DataError(f"{value.year}-{value.month}-{value.day} is not a date") from error
