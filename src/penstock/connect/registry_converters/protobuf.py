"""The Protobuf converter: values between Connect's form and Protobuf's bytes."""

from __future__ import annotations

import datetime as dt
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef, Model
from penstock.connect.converters.converter import Role
from penstock.connect.data import DataError, Moment, Schema, SchemaAndValue, Struct, Type, decimal_schema
from penstock.connect.registry_converters.registry_converter import (
    PROTOBUF_MODEL,
    REGISTRY_SETTINGS,
    RegistryConverter,
    flag_setting,
)
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    decimal_from_bytes,
    decimal_to_bytes,
)
from penstock.serde.formats.proto_classes import message_at, message_class
from penstock.serde.formats.protobuf import (
    ENUM,
    ENUM_TYPE,
    UNION,
    ProtobufNaming,
    ProtobufReading,
    field_name,
    in_union,
    is_real,
    message_schema,
    protobuf_file,
    says_optional,
    union_name,
)
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.client import Registered
from penstock.serde.schemas.value_bytes import index_bytes, indexes_of, read_indexes, skip_indexes

__all__ = ["ProtobufConverter"]

MOST_PATHS = 1000


@dataclass(frozen=True, slots=True)
class _MessageWriting:
    message: Any
    prefix: bytes


class ProtobufConverter(RegistryConverter):
    """Confluent's ``ProtobufConverter``: messages behind the id of their file and their place in it."""

    java_class: ClassVar[str] = "io.confluent.connect.protobuf.ProtobufConverter"
    kind: ClassVar[str] = "PROTOBUF"
    model: ClassVar[Model] = PROTOBUF_MODEL
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            *REGISTRY_SETTINGS,
            flag_setting("enhanced.protobuf.schema.support", "false", "Keep the packages of messages in names."),
            flag_setting("scrub.invalid.names", "false", "Replace characters that names cannot have."),
            flag_setting("int.for.enums", "false", "Read enums as their numbers."),
            flag_setting("optional.for.nullables", "false", "Nullable fields have the word optional."),
            flag_setting("wrapper.for.nullables", "false", "Nullable fields are messages such as StringValue."),
            flag_setting("wrapper.for.raw.primitives", "true", "Read messages such as StringValue as plain values."),
            flag_setting("generate.index.for.unions", "true", "The names of unions end with their place."),
        ]
    )

    def configure(self, settings: Mapping[str, Any], role: Role = "value") -> None:
        super().configure(settings, role)
        options = self.options
        nullable = {"optional": options["optional.for.nullables"], "wraps": options["wrapper.for.nullables"]}
        self._naming = ProtobufNaming(scrubs=options["scrub.invalid.names"], **nullable)
        self._reading = ProtobufReading(
            full_names=options["enhanced.protobuf.schema.support"],
            int_enums=options["int.for.enums"],
            unwraps=options["wrapper.for.raw.primitives"],
            numbers_unions=options["generate.index.for.unions"],
            **nullable,
        )

    def writing(self, schema: Schema) -> tuple[str, Any, str]:
        text, name = protobuf_file(schema, self._naming)
        try:
            message, _ = message_class(SchemaText(text, self.kind), name)
        except ValueError as error:
            raise DataError(
                f"{schema} cannot be a Protobuf message: {error}",
                hint="Names of fields are letters, digits and underscores: scrub.invalid.names=true replaces others.",
            ) from error
        return text, _MessageWriting(message, index_bytes(indexes_of(message.DESCRIPTOR))), name

    def writing_as(self, registered: Registered, plan: Any) -> Any:
        message, _ = message_class(registered.schema, plan.message.DESCRIPTOR.full_name)
        return _MessageWriting(plan.message, index_bytes(indexes_of(message.DESCRIPTOR)))

    def comparable(self, schema: SchemaText) -> SchemaText:
        message, _ = message_class(schema, None)
        return SchemaText(b64encode(message.DESCRIPTOR.file.serialized_pb).decode(), self.kind, schema.referred)

    def write(self, plan: Any, schema: Schema, value: Any) -> bytes:
        message = plan.message()
        try:
            if schema.type is Type.STRUCT or _logical_fields(schema, value) is not None:
                self._fill(message, schema, value)
            else:
                message.value = value
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(f"the value does not fit its Protobuf message: {error}") from error
        data: bytes = message.SerializeToString(deterministic=True)
        return bytes(plan.prefix) + data

    def reading(self, registered: Registered) -> tuple[Any, Schema | None]:
        return (registered.schema, {}), None

    def decoded(self, data: bytes, start: int, plan: Any, schema: Schema | None) -> SchemaAndValue:  # noqa: ARG002
        from google.protobuf.message import DecodeError

        text, classes = plan
        end = skip_indexes(data, start)
        if end < 0:
            raise DataError("the bytes have no path of a message after the schema's id")
        path = data[start:end]
        try:
            class_and_schema = classes.get(path)
            if class_and_schema is None:
                message, parameters = message_class(text, message_at(text, read_indexes(path)))
                class_and_schema = message, message_schema(message.DESCRIPTOR, parameters, self._reading)
                if len(classes) < MOST_PATHS:
                    classes[path] = class_and_schema
            return SchemaAndValue(
                class_and_schema[1],
                message_value(class_and_schema[1], class_and_schema[0].FromString(data[end:]), self._reading),
            )
        except (DecodeError, ValueError) as error:
            raise DataError(f"the bytes are not of their Protobuf schema: {error}") from error

    def _fill(self, message: Any, schema: Schema, value: Any) -> None:
        logical_fields = _logical_fields(schema, value)
        if logical_fields is not None:
            for name, part in logical_fields.items():
                setattr(message, name, part)
            message.SetInParent()
            return
        if not isinstance(value, Struct):
            raise DataError(f"a value of type {type(value).__name__} for {schema}")
        message.SetInParent()
        for part in schema.fields:
            inner = value[part.name]
            if inner is None:
                continue
            if part.schema.type is Type.STRUCT and (part.schema.name or "").startswith(UNION):
                for branch in part.schema.fields:
                    if inner[branch.name] is not None:
                        self._set(message, field_name(branch.name, self._naming), branch.schema, inner[branch.name])
                        break
            else:
                self._set(message, field_name(part.name, self._naming), part.schema, inner)

    def _set(self, message: Any, name: str, schema: Schema, value: Any) -> None:
        field = message.DESCRIPTOR.fields_by_name[name]
        if schema.type is Type.ARRAY and schema.values is not None:
            target = getattr(message, name)
            for each in value:
                if field.message_type is None:
                    target.append(_plain(schema.values, each, field))
                else:
                    self._message(target.add(), schema.values, each)
        elif schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
            target = getattr(message, name)
            for key, each in value.items():
                entry = target.add()
                if key is not None:
                    self._set(entry, "key", schema.keys, key)
                if each is not None:
                    self._set(entry, "value", schema.values, each)
        elif field.message_type is not None:
            self._message(getattr(message, name), schema, value)
        else:
            setattr(message, name, _plain(schema, value, field))

    def _message(self, message: Any, schema: Schema, value: Any) -> None:
        if schema.type is Type.STRUCT or _logical_fields(schema, value) is not None:
            self._fill(message, schema, value)
        else:  # one of the messages that wrap a nullable value
            message.value = value
            message.SetInParent()


def _plain(schema: Schema, value: Any, field: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        number = (schema.parameters or {}).get(f"{ENUM}.{value}")
        if number is None:
            raise DataError(f"{value!r} is not a symbol of the enum {field.enum_type.name}")
        return int(number)
    bits = {4: 64, 6: 64, 7: 32, 13: 32}.get(field.type)
    return value % (1 << bits) if bits and isinstance(value, int) else value


def _logical_fields(schema: Schema, value: Any) -> dict[str, Any] | None:
    """Return the fields of the message of a logical type."""
    if schema.name == DECIMAL_NAME and isinstance(value, Decimal):
        digits = len(value.as_tuple().digits)
        exponent = value.as_tuple().exponent
        scale = -exponent if isinstance(exponent, int) else 0
        return {"value": decimal_to_bytes(schema, value), "precision": digits, "scale": scale}
    if not isinstance(value, Moment):
        return None
    if schema.name == DATE_NAME:
        day = value.date()
        return {"year": day.year, "month": day.month, "day": day.day}
    if schema.name == TIME_NAME:
        seconds, ms = divmod(value.ms, 1000)
        return {
            "hours": seconds // 3600,
            "minutes": seconds // 60 % 60,
            "seconds": seconds % 60,
            "nanos": ms * 1_000_000,
        }
    if schema.name == TIMESTAMP_NAME:
        return {"seconds": value.ms // 1000, "nanos": value.ms % 1000 * 1_000_000}
    return None


def message_value(schema: Schema, value: Any, reading: ProtobufReading) -> Any:
    """Return the value of a message, or of one of its fields."""
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
    record = Struct(schema)
    descriptor = value.DESCRIPTOR
    for oneof in descriptor.oneofs:
        chosen = value.WhichOneof(oneof.name) if is_real(oneof) else None
        if chosen is not None:
            name = union_name(oneof, reading)
            inner = schema.field(name)
            assert inner is not None  # noqa: S101 - the schema was made of the descriptor
            part = inner.schema.field(chosen)
            assert part is not None  # noqa: S101
            one = descriptor.fields_by_name[chosen]
            record[name] = Struct(inner.schema, {chosen: _field_value(part.schema, one, value, reading)})
    for one in descriptor.fields:
        if in_union(one):
            continue
        part = schema.field(one.name)
        has_no_presence = one.is_repeated or (one.message_type is None and not says_optional(one))
        if part is not None and (has_no_presence or value.HasField(one.name)):
            record[one.name] = _field_value(part.schema, one, value, reading)
    return record


def _field_value(schema: Schema, field: Any, value: Any, reading: ProtobufReading) -> Any:
    raw = getattr(value, field.name)
    if field.type == ENUM_TYPE and schema.type in (Type.STRING, Type.ARRAY):
        by_number = field.enum_type.values_by_number

        def symbol(number: int) -> str:
            enum_value = by_number.get(number)
            return enum_value.name if enum_value else f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{number}"

        inner = schema.values if schema.type is Type.ARRAY else schema
        if inner is not None and inner.type is Type.STRING:
            return [symbol(each) for each in raw] if field.is_repeated else symbol(raw)
    return message_value(schema, raw, reading)


def _decimal(value: Any) -> Decimal:
    return decimal_from_bytes(decimal_schema(value.scale), value.value or b"\0")


def _date(value: Any) -> Moment:
    try:
        return Moment.of(dt.date(value.year, value.month, value.day))
    except ValueError as error:
        raise DataError(f"{value.year}-{value.month}-{value.day} is not a date") from error
