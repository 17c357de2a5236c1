"""Connect's schemas as Protobuf files and back, by the naming of Confluent's converter: messages, tags, parameters."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote_plus

from penstock.serde.data import DATE, TIME, TIMESTAMP, DataError, Schema, Type, decimal_schema, map_of
from penstock.serde.data import array as array_of
from penstock.serde.data import struct as struct_of
from penstock.serde.data.logical import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME
from penstock.serde.formats.proto_classes import SCALARS as NUMBERS
from penstock.serde.formats.proto_classes import known_file, set_parameters
from penstock.serde.formats.schema_text import SchemaWalk

__all__ = [
    "BOX",
    "BOX_FIELD",
    "ENUM",
    "ENUM_TYPE",
    "MESSAGE_TYPE",
    "UNION",
    "WRAPPED",
    "ProtobufNaming",
    "ProtobufReading",
    "field_name",
    "in_union",
    "is_real",
    "message_schema",
    "protobuf_file",
    "says_optional",
    "union_name",
]

NAMESPACE = "io.confluent.connect.protobuf"
ENUM, UNION, TAG, TYPE = (f"{NAMESPACE}.{part}" for part in ("Enum", "Union", "Tag", "Type"))
OPTIONAL, REPEATED = 1, 3
ENUM_TYPE, MESSAGE_TYPE = 14, 11
SCALARS = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
WRAPPERS = {
    "int32": "Int32Value",
    "int64": "Int64Value",
    "uint32": "UInt32Value",
    "fixed32": "UInt32Value",
    "uint64": "UInt64Value",
    "fixed64": "UInt64Value",
    "float": "FloatValue",
    "double": "DoubleValue",
    "bool": "BoolValue",
    "string": "StringValue",
    "bytes": "BytesValue",
}
LOGICAL = {
    DECIMAL_NAME: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    DATE_NAME: ("google.type.Date", "google/type/date.proto"),
    TIME_NAME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP_NAME: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
WRAPPER_FILE, META_FILE = "google/protobuf/wrappers.proto", "confluent/meta.proto"
PRECISION = "connect.decimal.precision"
WORDS = {number: word for word, number in NUMBERS.items()}
WRAPPED = {f"google.protobuf.{name}": word for word, name in WRAPPERS.items() if not word.startswith("fixed")}
CONNECT = {"float": Type.FLOAT32, "double": Type.FLOAT64, "bool": Type.BOOLEAN, "string": Type.STRING}
CONNECT |= {"bytes": Type.BYTES, **dict.fromkeys(("int32", "sint32", "sfixed32"), Type.INT32)}
SMALL = {"int8": Type.INT8, "int16": Type.INT16}
DAY_LOGICAL = {"google.type.Date": DATE, "google.type.TimeOfDay": TIME, "google.protobuf.Timestamp": TIMESTAMP}
BOX, BOX_FIELD = "Collection", "value"
Parameters = Mapping[tuple[str, str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class ProtobufNaming:
    """The converter's settings of the files that it makes.

    Attributes:
        scrubs: Characters that Protobuf's names cannot have are replaced (``scrub.invalid.names``).
        optional: Nullable fields have the word ``optional`` (``optional.for.nullables``).
        wraps: Nullable fields are messages such as ``StringValue`` (``wrapper.for.nullables``).
    """

    scrubs: bool = False
    optional: bool = False
    wraps: bool = False


def protobuf_file(schema: Schema, naming: ProtobufNaming) -> tuple[str, str]:
    """Return the file of a schema, as a descriptor in base64, and the full name of its message.

    Raises:
        DataError: Protobuf has no form for the schema.

    Example:
        >>> from penstock.connect.data import INT32, struct
        >>> protobuf_file(struct({"a": INT32}, name="org.example.Line"), ProtobufNaming())[1]
        'org.example.Line'
    """
    if schema.type in (Type.ARRAY, Type.MAP) or (schema.type is Type.STRUCT and _is_union(schema)):
        raise DataError(
            f"Unsupported root schema of type {schema.type}",
            hint="Protobuf's messages are structs: put the value into a field, as the transformation HoistField does.",
        )
    if schema.type is not Type.STRUCT:
        name, path = LOGICAL.get(schema.name or "", (f"google.protobuf.{WRAPPERS[SCALARS[schema.type]]}", WRAPPER_FILE))
        return _known_file(path), name
    return _Maker(naming).file(schema)


def field_name(name: str, naming: ProtobufNaming) -> str:
    """Return the name that a field has in a message.

    >>> field_name("a-b", ProtobufNaming(scrubs=True)), field_name("_é", ProtobufNaming(scrubs=True))
    ('a_b', 'x__C3_A9')
    """
    if not naming.scrubs or re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        return name
    encoded = quote_plus(name, safe="*")
    return re.sub("[^A-Za-z0-9_]", "_", f"x{encoded}" if encoded[0] in "0123456789_" else encoded)


def _is_union(schema: Schema) -> bool:
    return (schema.name or "").startswith(UNION)


def _known_file(path: str) -> str:
    return base64.b64encode(known_file(path).SerializeToString(deterministic=True)).decode()


class _Maker:
    """The maker of one file."""

    def __init__(self, naming: ProtobufNaming) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        self._naming = naming
        self._file: Any = FileDescriptorProto(syntax="proto3")
        self._unnamed = 0

    def file(self, schema: Schema) -> tuple[str, str]:
        package, _, name = self._or_default(schema.name).rpartition(".")
        name = field_name(name, self._naming)
        full = f"{package}.{name}" if package else name
        self._file.name = f"{full.replace('.', '/')}.proto"
        if package:
            self._file.package = package
        message = self._file.message_type.add(name=name)
        self._fields(message, f".{full}", schema)
        return base64.b64encode(self._file.SerializeToString(deterministic=True)).decode(), full

    def _or_default(self, name: str | None) -> str:
        if name:
            return name
        self._unnamed += 1
        return f"ConnectDefault{self._unnamed}"

    def _short(self, name: str | None) -> str:
        return field_name(self._or_default(name).rpartition(".")[2], self._naming)

    def _imports(self, path: str) -> None:
        if path not in self._file.dependency:
            self._file.dependency.append(path)

    def _fields(self, message: Any, path: str, schema: Schema) -> None:
        following = 1
        for part in schema.fields:
            tag = _tag(part.schema)
            if tag is None:
                tag, following = following, following + 1
            if part.schema.type is Type.STRUCT and _is_union(part.schema):
                self._oneof(message, path, part.schema)
                continue
            field = self._field(message, path, (field_name(part.name, self._naming), part.schema, tag))
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
        real = [one for one in message.oneof_decl if not one.name.startswith("_")]
        if len(real) != len(message.oneof_decl):  # descriptors have synthetic oneofs behind the real ones
            _reorder(message)

    def _oneof(self, message: Any, path: str, schema: Schema) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._short((schema.name or "").removeprefix(f"{UNION}.")))
        for part in schema.fields:
            tag = _tag(part.schema)
            if tag is None:
                raise DataError(
                    f"the field {part.name} of the union {schema.name} has no number",
                    hint=f"Set its parameter {TAG}, as schemas that are read from the registry have it.",
                )
            field = self._field(message, path, (field_name(part.name, self._naming), part.schema, tag))
            field.ClearField("proto3_optional")
            field.oneof_index = index

    def _field(self, message: Any, path: str, of: tuple[str, Schema, int]) -> Any:
        name, schema, number = of
        field = message.field.add(name=name, number=number, label=OPTIONAL)
        if schema.type in (Type.ARRAY, Type.MAP):
            field.label = REPEATED
        elif self._naming.optional and schema.optional:
            field.proto3_optional = True
        if schema.type is Type.ARRAY:
            if schema.values is None or schema.values.type in (Type.ARRAY, Type.MAP):
                raise DataError(
                    f"the field {name} is an array of arrays or maps, which Protobuf cannot repeat",
                    hint="Make the elements structs with one field.",
                )
            schema = schema.values
        parameters = self._type(message, path, field, schema)
        if parameters:
            set_parameters(field, parameters)
            self._imports(META_FILE)
        return field

    def _type(self, message: Any, path: str, field: Any, schema: Schema) -> dict[str, str]:
        """Set the type of a field; return Confluent's parameters of it."""
        parameters: Mapping[str, str] = schema.parameters or {}
        if schema.name in LOGICAL:
            kind, source = LOGICAL[schema.name]
            field.type, field.type_name = MESSAGE_TYPE, f".{kind}"
            self._imports(source)
            if schema.name != DECIMAL_NAME:
                return {}
            decimal_parameters = {"precision": parameters.get(PRECISION), "scale": parameters.get("scale")}
            return {name: value for name, value in decimal_parameters.items() if value is not None}
        if ENUM in parameters:
            name = parameters[ENUM]
            field.type, field.type_name = ENUM_TYPE, f"{path}.{name}"
            if all(one.name != name for one in message.enum_type):
                enum_type = message.enum_type.add(name=name)
                symbols = ((key.removeprefix(f"{ENUM}."), value) for key, value in parameters.items() if key != ENUM)
                for symbol, value in symbols:
                    if symbol != TAG and not symbol.startswith(NAMESPACE):
                        enum_type.value.add(name=symbol, number=int(value))
            return {}
        if schema.type is Type.STRUCT:
            self._message(message, path, field, schema)
            return {}
        if schema.type is Type.MAP:
            self._map(message, path, field, schema)
            return {}
        kind = (
            parameters.get(TYPE, SCALARS[schema.type])
            if schema.type in (Type.INT32, Type.INT64)
            else SCALARS[schema.type]
        )
        if self._naming.wraps and schema.optional:
            field.type, field.type_name = MESSAGE_TYPE, f".google.protobuf.{WRAPPERS.get(kind, WRAPPERS['int64'])}"
            self._imports(WRAPPER_FILE)
        else:
            field.type = NUMBERS[kind]
        return {"connect.type": schema.type.value} if schema.type in (Type.INT8, Type.INT16) else {}

    def _message(self, message: Any, path: str, field: Any, schema: Schema) -> None:
        name = self._short(schema.name)
        if name == field.name:
            name += "Message"
        field.type, field.type_name = MESSAGE_TYPE, f"{path}.{name}"
        if all(one.name != name for one in message.nested_type):
            self._fields(message.nested_type.add(name=name), f"{path}.{name}", schema)

    def _map(self, message: Any, path: str, field: Any, schema: Schema) -> None:
        if schema.keys is None or schema.values is None:
            raise DataError(f"the map {field.name} has keys or values without schema")
        name = self._short(schema.name)
        if "_" in name:
            name = "".join(word.capitalize() for word in name.split("_"))
        name += "Entry"
        field.type, field.type_name = MESSAGE_TYPE, f"{path}.{name}"
        if any(one.name == name for one in message.nested_type):
            return
        entry = message.nested_type.add(name=name)
        self._field(entry, f"{path}.{name}", ("key", schema.keys, 1))
        self._field(entry, f"{path}.{name}", ("value", schema.values, 2))
        for part in entry.field:
            part.ClearField("proto3_optional")


def _tag(schema: Schema) -> int | None:
    text = (schema.parameters or {}).get(TAG)
    return None if text is None else int(text)


def _reorder(message: Any) -> None:
    old = list(message.oneof_decl)
    synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
    order = sorted(range(len(old)), key=lambda index: (index in synthetic, index))
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = order.index(field.oneof_index)
    names = [old[index].name for index in order]
    del message.oneof_decl[:]
    for name in names:
        message.oneof_decl.add(name=name)


@dataclass(frozen=True, slots=True)
class ProtobufReading:
    """The converter's settings of the schemas that it reads.

    Attributes:
        full_names: Names have their packages (``enhanced.protobuf.schema.support``).
        int_enums: Enums are their numbers (``int.for.enums``).
        optional: Only fields with the word ``optional`` are nullable (``optional.for.nullables``).
        wraps: Only messages such as ``StringValue`` are nullable, as plain values (``wrapper.for.nullables``).
        unwraps: A message that is nothing but such a value is the value (``wrapper.for.raw.primitives``).
        numbers_unions: The names of unions end with their place (``generate.index.for.unions``).
        flattens: The fields of unions are fields of the message, and messages that are boxes of an array or a map
            (``Collection1 {value}``, as SQL writes those within others) are what they hold.
    """

    full_names: bool = False
    int_enums: bool = False
    optional: bool = False
    wraps: bool = False
    unwraps: bool = True
    numbers_unions: bool = True
    flattens: bool = False


def message_schema(descriptor: Any, parameters: Parameters, reading: ProtobufReading) -> Schema:
    """Return the schema of a message.

    Raises:
        DataError: The message holds itself.
    """
    if reading.unwraps and descriptor.full_name in WRAPPED:
        return Schema(_kind(WRAPPED[descriptor.full_name]))
    logical_schema = None if reading.flattens else DAY_LOGICAL.get(descriptor.full_name)
    return logical_schema or _DescriptorReader(parameters, reading).message(descriptor)


class _DescriptorReader:
    def __init__(self, parameters: Parameters, reading: ProtobufReading) -> None:
        self._parameters = parameters
        self._reading = reading
        self._walk = SchemaWalk()

    def _name(self, descriptor: Any) -> str:
        return str(descriptor.full_name if self._reading.full_names else descriptor.name)

    def message(self, descriptor: Any) -> Schema:
        with self._walk.inside(descriptor.full_name):
            parts = [(union_name(one, self._reading), self._union(one)) for one in self._unions(descriptor)]
            parts += [
                (one.name, self._field(one)) for one in descriptor.fields if self._reading.flattens or not in_union(one)
            ]
        return struct_of(parts, name=self._name(descriptor))

    def _unions(self, descriptor: Any) -> list[Any]:
        return [] if self._reading.flattens else [one for one in descriptor.oneofs if is_real(one)]

    def _union(self, oneof: Any) -> Schema:
        fields = [(one.name, self._field(one)) for one in oneof.fields]
        return struct_of(fields, name=f"{UNION}.{self._name(oneof)}", optional=True)

    def _field(self, field: Any) -> Schema:
        self._walk.field()
        connect_schema = self._type(field)
        nullable = connect_schema.optional
        if field.is_repeated:
            connect_schema, nullable = (
                connect_schema if _is_map(field) else array_of(connect_schema.as_optional()),
                True,
            )
        if self._reading.optional:
            nullable = nullable or says_optional(field)
        elif not self._reading.wraps:
            nullable = True
        parameters = {**(connect_schema.parameters or {}), TAG: str(field.number)}
        return replace(connect_schema, optional=nullable, parameters=parameters)

    def _type(self, field: Any) -> Schema:
        message = field.message_type
        path = str(field.containing_type.full_name).removeprefix(f"{field.file.package}." if field.file.package else "")
        field_parameters = self._parameters.get((path, field.name), {})
        if field.type == ENUM_TYPE:
            return self._enum(field.enum_type)
        if message is None:
            word = WORDS[field.type]
            kind = SMALL.get(field_parameters.get("connect.type", ""), _kind(word)) if word == "int32" else _kind(word)
            plain = "int32" if kind is not Type.INT64 else "int64"
            is_other = kind in (Type.INT32, Type.INT64) and word != plain
            return Schema(kind, parameters={TYPE: word} if is_other else None)
        if message.full_name == "confluent.type.Decimal":
            connect_schema = decimal_schema(_int(field_parameters.get("scale")) or 0)
            precision = _int(field_parameters.get("precision"))
            if precision is not None:
                connect_schema = replace(
                    connect_schema, parameters={**(connect_schema.parameters or {}), PRECISION: str(precision)}
                )
            return connect_schema.as_optional()
        if message.full_name in DAY_LOGICAL:
            return DAY_LOGICAL[message.full_name].as_optional()
        if self._reading.wraps and message.full_name in WRAPPED:
            return Schema(_kind(WRAPPED[message.full_name]), optional=True)
        if _is_map(field):
            keys, values = (self._field(one) for one in message.fields)
            return replace(map_of(keys, values, optional=True), name=_map_name(self._name(message)))
        connect_schema = self.message(message)
        if (
            self._reading.flattens
            and message.name.startswith(BOX)
            and [one.name for one in connect_schema.fields] == [BOX_FIELD]
        ):
            connect_schema = connect_schema.fields[0].schema
        return connect_schema.as_optional()

    def _enum(self, descriptor: Any) -> Schema:
        values = {f"{ENUM}.{value.name}": str(value.number) for value in descriptor.values}
        kind = Type.INT32 if self._reading.int_enums else Type.STRING
        return Schema(kind, True, name=self._name(descriptor), parameters={ENUM: descriptor.name, **values})  # noqa: FBT003


def union_name(oneof: Any, reading: ProtobufReading) -> str:
    """Return the name of the field that holds a union."""
    return f"{oneof.name}_{oneof.index}" if reading.numbers_unions else str(oneof.name)


def is_real(oneof: Any) -> bool:
    return not (len(oneof.fields) == 1 and _is_synthetic(oneof.fields[0]))


def _is_synthetic(field: Any) -> bool:
    oneof = field.containing_oneof
    return oneof is not None and len(oneof.fields) == 1 and oneof.name == f"_{field.name}"


def in_union(field: Any) -> bool:
    return field.containing_oneof is not None and is_real(field.containing_oneof)


def says_optional(field: Any) -> bool:
    """Return whether a field has presence by its own word: ``optional`` of proto3, or of proto2."""
    if field.is_repeated or field.message_type is not None:
        return _is_synthetic(field)
    return bool(field.has_presence) and not field.is_required and not in_union(field)


def _is_map(field: Any) -> bool:
    message = field.message_type
    names = [] if message is None else [one.name for one in message.fields]
    return bool(
        message is not None
        and field.is_repeated
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
